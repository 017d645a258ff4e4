-- server: mysql
-- options: binlog_row_value_options=PARTIAL_JSON binlog_row_image=FULL
CREATE DATABASE shop;
USE shop;
CREATE TABLE docs (id INT PRIMARY KEY, doc JSON, other JSON, n INT) ENGINE=InnoDB;
INSERT INTO docs VALUES
  (1, JSON_OBJECT('name', 'ü', 'list', JSON_ARRAY(1, 2, 3), 'long', REPEAT('x', 200)), '[1, 2]', 1),
  (2, JSON_OBJECT('name', 'b', 'long', REPEAT('y', 200)), NULL, 2);
UPDATE docs SET doc = JSON_SET(doc, '$.name', 'changed');
UPDATE docs SET doc = JSON_REMOVE(JSON_INSERT(doc, '$.new', 5), '$.list[1]'), n = n + 10 WHERE id = 1;
UPDATE docs SET doc = JSON_REPLACE(doc, '$.long', 'short', '$.name', 'c'), other = JSON_ARRAY_APPEND(other, '$', 3);
UPDATE docs SET n = 0 WHERE id = 2;
