-- server: mariadb
-- options: gtid_domain_id=3
SET TIMESTAMP = 1700000000.123456;
CREATE DATABASE shop;
USE shop;
CREATE TABLE typed (
  id BIGINT UNSIGNED PRIMARY KEY, t TINYINT, tu TINYINT UNSIGNED, s SMALLINT, m MEDIUMINT UNSIGNED, i INT, b BIGINT,
  bits BIT(13), price DECIMAL(30,10), f FLOAT, d DOUBLE, y YEAR, day DATE, at DATETIME(6), stamp TIMESTAMP(3) NULL,
  took TIME(4), fixed CHAR(9), word VARCHAR(300), latin VARCHAR(20) CHARACTER SET latin1, note TEXT, bin BINARY(4),
  raw VARBINARY(20), big BLOB, state ENUM('new','old','ümlaut'), tags SET('a','b','c'), doc JSON, place GEOMETRY);
INSERT INTO typed VALUES
  (18446744073709551615, -128, 255, -32768, 16777215, -2147483648, -9223372036854775808, b'1010101010101',
   -12345678901234567890.0123456789, 1.5, -1.7976931348623157e308, 1901, '1000-01-01', '9999-12-31 23:59:59.999999',
   '2038-01-19 03:14:07.999', '-838:59:58.9999', 'fixed', REPEAT('w', 300), 'é', 'note ü€😀', x'6100', x'00ff', x'00',
   'ümlaut', 'a,c', '{"k": [1, -2.5, null, true, "ü"], "o": {"deep": {}}}', ST_GeomFromText('POINT(1 2)')),
  (1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
   NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (2, 0, 0, 0, 0, 0, 0, b'0', 0, 0, 0, 0, '2024-02-29', '2024-02-29 00:00:00.000001', '1970-01-01 00:00:01', '00:00:00',
   '', '', '', '', '', '', '', 'new', '', 'null', NULL);
UPDATE typed SET t = 5, doc = '{"k": "changed"}', word = 'changed' WHERE id <> 2;
DELETE FROM typed WHERE id = 2;
CREATE TABLE pair (a INT, b VARCHAR(60), c INT GENERATED ALWAYS AS (a + 1) STORED, PRIMARY KEY (a, b)) ENGINE=InnoDB;
CREATE TABLE plain (n INT, v VARCHAR(20)) ENGINE=MyISAM;
CREATE TABLE undone (id INT PRIMARY KEY) ENGINE=InnoDB;
BEGIN;
INSERT INTO pair (a, b) VALUES (1, 'one'), (2, 'two');
SAVEPOINT s1;
INSERT INTO undone VALUES (1);
INSERT INTO plain VALUES (1, 'not undone');
ROLLBACK TO SAVEPOINT s1;
UPDATE pair SET a = 20 WHERE a = 2;
COMMIT;
ALTER TABLE pair ADD COLUMN d DATETIME(3) DEFAULT '2020-01-01 00:00:00.5';
UPDATE pair SET d = NULL WHERE a = 1;
CREATE TABLE copied ENGINE=InnoDB AS SELECT id, word FROM typed;
DELETE FROM copied WHERE id = 1;
SET binlog_alter_two_phase = ON;
ALTER TABLE pair ADD COLUMN e INT NOT NULL DEFAULT 9, ALGORITHM=COPY;
SET binlog_alter_two_phase = OFF;
UPDATE pair SET e = 10 WHERE a = 20;
SET GLOBAL log_bin_compress_min_len = 10;
SET GLOBAL log_bin_compress = ON;
BEGIN;
INSERT INTO pair (a, b) SELECT 100 + a, REPEAT('packed', 9) FROM pair;
UPDATE pair SET b = CONCAT(b, '!') WHERE a > 100;
DELETE FROM pair WHERE a = 101;
COMMIT;
ALTER TABLE plain ADD COLUMN more VARCHAR(100) DEFAULT 'a default that is not short at all';
SET GLOBAL log_bin_compress = OFF;
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
