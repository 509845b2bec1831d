package sqlite

// migrations are the steps of sqlitedb.Migrate. A released step must never change.
//
// AUTOINCREMENT never uses an id twice, so the receipt of a deleted message is never valid
// for a later message. The index has the order in which Receive takes messages: first by the
// time when a message became visible, then by the order in which messages were sent.
var migrations = []string{`
CREATE TABLE queue_messages (
	id         INTEGER PRIMARY KEY AUTOINCREMENT,
	name       TEXT    NOT NULL,
	dead       INTEGER NOT NULL DEFAULT 0, -- 1: among the dead letters
	visible_at INTEGER NOT NULL,           -- nanoseconds since 1970
	receives   INTEGER NOT NULL DEFAULT 0,
	body       BLOB    NOT NULL
) STRICT;
CREATE INDEX queue_order ON queue_messages (name, dead, visible_at, id);
`}

const (
	insertMessage = `INSERT INTO queue_messages (name, visible_at, body) VALUES (?, ?, ?)`

	// firstMessage finds the message with the earliest visible_at, in the past or future.
	firstMessage = `SELECT id, visible_at, receives FROM queue_messages
		WHERE name = ? AND dead = 0 ORDER BY visible_at, id LIMIT 1`

	// takeMessage takes the first message of queue ?1 if it is visible at ?2 and had fewer
	// than ?3 deliveries. It hides the message until ?4.
	takeMessage = `UPDATE queue_messages SET visible_at = ?4, receives = receives + 1
		WHERE id = (SELECT id FROM queue_messages
			WHERE name = ?1 AND dead = 0 ORDER BY visible_at, id LIMIT 1)
		AND visible_at <= ?2 AND receives < ?3 RETURNING id, body, receives`

	// buryMessage moves a message to the dead letters, unless a delivery still hides it.
	buryMessage = `UPDATE queue_messages SET dead = 1
		WHERE id = ? AND dead = 0 AND visible_at <= ? AND receives >= ?`

	// knowMessage finds out whether a message exists. It does not compare the receipt.
	knowMessage = `SELECT 1 FROM queue_messages WHERE id = ?`

	// deleteMessage deletes a message. It changes nothing if the receipt is not the
	// message's latest receipt.
	deleteMessage = `DELETE FROM queue_messages WHERE id = ? AND name = ? AND receives = ?`

	// extendMessage sets the end of a hidden message's visibility timeout. It changes
	// nothing if the receipt is not the message's latest receipt.
	extendMessage = `UPDATE queue_messages SET visible_at = ?
		WHERE id = ? AND name = ? AND receives = ? AND visible_at > ?`

	removeMessage = `DELETE FROM queue_messages WHERE id = ?`

	buryAll = `UPDATE queue_messages SET dead = 1
		WHERE name = ? AND dead = 0 AND visible_at <= ? AND receives >= ?`

	deadMessages = `SELECT id, body, receives FROM queue_messages
		WHERE name = ? AND dead = 1 ORDER BY visible_at, id LIMIT ?`

	dropQueue = `DELETE FROM queue_messages WHERE name = ?`
)
