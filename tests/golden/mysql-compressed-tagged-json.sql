-- server: mysql
-- options: binlog_transaction_compression=ON binlog_row_value_options=PARTIAL_JSON binlog_rows_query_log_events=ON
CREATE DATABASE shop;
USE shop;
CREATE TABLE docs (id INT PRIMARY KEY, doc JSON, other JSON, n INT) ENGINE=InnoDB;
INSERT INTO docs VALUES
  (1, JSON_OBJECT('name', 'ü', 'list', JSON_ARRAY(1, 2, 3), 'long', REPEAT('x', 3000)), '[1, 2]', 1),
  (2, JSON_OBJECT('name', 'b', 'long', REPEAT('y', 3000)), NULL, 2);
SET gtid_next = 'AUTOMATIC:billing';
UPDATE docs SET doc = JSON_SET(doc, '$.long', 'short') WHERE id = 1;
BEGIN;
UPDATE docs SET doc = JSON_REMOVE(JSON_INSERT(doc, '$.new', 5), '$.list[1]'), n = n + 10 WHERE id = 1;
UPDATE docs SET doc = JSON_REPLACE(doc, '$.long', 'brief', '$.name', 'c') WHERE id = 2;
DELETE FROM docs WHERE id = 2;
COMMIT;
SET gtid_next = AUTOMATIC;
INSERT INTO docs VALUES (3, JSON_ARRAY(REPEAT('z', 2000), 1.5), '{}', 3);
UPDATE docs SET other = JSON_SET(other, '$.at', CAST('2024-01-01' AS DATE)) WHERE id = 3;
