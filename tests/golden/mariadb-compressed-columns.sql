-- server: mariadb
-- options: column_compression_threshold=0
CREATE DATABASE shop;
USE shop;
CREATE TABLE packed (id INT PRIMARY KEY, word VARCHAR(500) COMPRESSED, note TEXT COMPRESSED, raw VARBINARY(500) COMPRESSED,
  big MEDIUMBLOB COMPRESSED, plain VARCHAR(20));
INSERT INTO packed VALUES (1, REPEAT('word ', 50), REPEAT('note ü ', 500), REPEAT(x'00ff', 100), REPEAT('blob', 2000), 'p'),
  (2, '', '', '', '', ''), (3, NULL, NULL, NULL, NULL, NULL), (4, 'x', 'y', x'00', x'ff', 'short');
UPDATE packed SET word = CONCAT(word, 'more'), plain = 'q' WHERE id IN (1, 4);
DELETE FROM packed WHERE id = 2;
