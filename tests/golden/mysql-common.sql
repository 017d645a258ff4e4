-- server: mysql
-- options: binlog_rows_query_log_events=ON explicit_defaults_for_timestamp=ON
SET TIMESTAMP = 1700000000.123456;
CREATE DATABASE shop;
USE shop;
CREATE TABLE typed (
  id BIGINT UNSIGNED PRIMARY KEY, t TINYINT, tu TINYINT UNSIGNED, s SMALLINT, m MEDIUMINT UNSIGNED, i INT, b BIGINT,
  bits BIT(13), price DECIMAL(30,10), f FLOAT, d DOUBLE, y YEAR, day DATE, at DATETIME(6), stamp TIMESTAMP(3) NULL,
  took TIME(4), fixed CHAR(9), word VARCHAR(300), latin VARCHAR(20) CHARACTER SET latin1, note TEXT, bin BINARY(4),
  raw VARBINARY(20), big BLOB, state ENUM('new','old','ümlaut'), tags SET('a','b','c'), doc JSON, place GEOMETRY SRID 4326);
INSERT INTO typed VALUES
  (18446744073709551615, -128, 255, -32768, 16777215, -2147483648, -9223372036854775808, b'1010101010101',
   -12345678901234567890.0123456789, 1.5, -1.7976931348623157e308, 1901, '1000-01-01', '9999-12-31 23:59:59.999999',
   '2038-01-19 03:14:07.999', '-838:59:58.9999', 'fixed', REPEAT('w', 300), 'é', 'note ü€😀', x'6100', x'00ff', x'00',
   'ümlaut', 'a,c', '{"k": [1, -2.5, null, true, "ü"], "o": {"deep": {}}}', ST_GeomFromText('POINT(1 2)', 4326)),
  (1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
   NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (2, 0, 0, 0, 0, 0, 0, b'0', 0, 0, 0, 0, '2024-02-29', '2024-02-29 00:00:00.000001', '1970-01-01 00:00:01', '00:00:00',
   '', '', '', '', '', '', '', 'new', '', 'null', NULL);
UPDATE typed SET t = 5, doc = JSON_SET(doc, '$.k[0]', CAST('2024-01-01' AS DATE)), word = 'changed' WHERE id <> 2;
DELETE FROM typed WHERE id = 2;
CREATE TABLE pair (a INT, b VARCHAR(20), c INT GENERATED ALWAYS AS (a + 1) STORED, PRIMARY KEY (a, b)) ENGINE=InnoDB;
CREATE TABLE plain (n INT, v VARCHAR(20)) ENGINE=InnoDB;
CREATE TABLE isam (n INT PRIMARY KEY, v VARCHAR(20)) ENGINE=MyISAM;
INSERT INTO isam VALUES (1, 'ends with COMMIT');
CREATE TRIGGER log_pair AFTER INSERT ON pair FOR EACH ROW INSERT INTO plain VALUES (NEW.a, NEW.b);
BEGIN;
INSERT INTO pair (a, b) VALUES (1, 'one'), (2, 'two');
SAVEPOINT s1;
DELETE FROM pair WHERE a = 1;
ROLLBACK TO SAVEPOINT s1;
UPDATE pair SET a = 20 WHERE a = 2;
COMMIT;
SET gtid_next = 'AUTOMATIC:golden';
INSERT INTO pair (a, b) VALUES (3, 'tagged');
SET gtid_next = 'AUTOMATIC';
ALTER TABLE pair ADD COLUMN d DATETIME(3) DEFAULT '2020-01-01 00:00:00.5';
UPDATE pair SET d = NULL WHERE a = 3;
CREATE TABLE copied ENGINE=InnoDB AS SELECT id, word FROM typed;
DELETE FROM copied WHERE id = 1;
SET binlog_transaction_compression = ON;
BEGIN;
INSERT INTO pair (a, b) SELECT 100 + a, REPEAT('packed', 3) FROM pair;
UPDATE pair SET b = CONCAT(b, '!') WHERE a > 100;
COMMIT;
SET binlog_transaction_compression = OFF;
XA START 'golden', 'branch', 7;
INSERT INTO pair (a, b) VALUES (50, 'two phases');
XA END 'golden', 'branch', 7;
XA PREPARE 'golden', 'branch', 7;
XA COMMIT 'golden', 'branch', 7;
XA START 'one';
INSERT INTO pair (a, b) VALUES (51, 'one phase');
XA END 'one';
XA COMMIT 'one' ONE PHASE;
SET binlog_row_image = MINIMAL;
UPDATE typed SET word = 'minimal' WHERE id = 1;
SET binlog_row_image = NOBLOB;
UPDATE typed SET i = 77 WHERE id = 1;
SET binlog_row_image = FULL;
DROP TABLE copied;
