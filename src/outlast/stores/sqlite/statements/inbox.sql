-- Inboxes.

-- name: find_receipt
SELECT number FROM receipts WHERE run_key = ? AND id = ?;

-- name: insert_receipt
INSERT INTO receipts (run_key, id, number) VALUES (?, ?, ?);

-- name: insert_item
INSERT INTO inbox (run_key, number, id, kind, name, sender, sent_at, data)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: consume_items
DELETE FROM inbox WHERE run_key = ? AND number = ?;

-- name: find_unseen_item
SELECT number FROM inbox WHERE run_key = ? AND number > ? LIMIT 1;

-- name: load_inbox
SELECT number, id, kind, name, sender, sent_at, data
FROM inbox
WHERE run_key = (SELECT key FROM runs WHERE id = ?) AND number > ?
ORDER BY number
LIMIT ?;

-- name: carry_items
UPDATE inbox SET run_key = ? WHERE run_key = ?;

-- name: carry_receipts
-- Receipts of the last items, and of all that wait; the others are deleted with the old life.
UPDATE receipts SET run_key = :new
WHERE run_key = :old
  AND (number > :after OR EXISTS (
      SELECT 1 FROM inbox AS i WHERE i.run_key = :new AND i.number = receipts.number));
