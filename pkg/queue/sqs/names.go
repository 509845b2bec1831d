package sqs

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/fairlead/fairlead/pkg/queue"
)

// maxName is the maximum length of a queue name in SQS. Like our names, it consists of
// letters, digits, hyphens and underscores.
const maxName = 80

// The suffixes of queue names in SQS; the last two are for names that were too long. No
// suffix ends in another one, so no queue can have the name of another queue's dead-letter
// queue. Suffixes rather than prefixes make a list show the two queues together.
const (
	liveSuffix       = "-q"
	deadSuffix       = "-dead"
	hashedLiveSuffix = "-hq"
	hashedDeadSuffix = "-hdead"
)

// hashLength is the number of hexadecimal digits of the hash that replaces a name that is
// too long: 128 bits.
const hashLength = 32

// maxPrefix leaves space for a hash and the suffix.
const maxPrefix = maxName - hashLength - len(hashedDeadSuffix)

// names returns the names in SQS of the queue and of its dead-letter queue. No two queues
// with the same prefix share one.
func names(prefix, name string) (live, dead string) {
	base := prefix + name
	if len(base)+len(deadSuffix) <= maxName {
		return base + liveSuffix, base + deadSuffix
	}
	sum := sha256.Sum256([]byte(name))
	base = prefix + hex.EncodeToString(sum[:hashLength/2])
	return base + hashedLiveSuffix, base + hashedDeadSuffix
}

// textMark is the prefix of a body in base64. SQS accepts only characters that XML accepts,
// but a body can have any bytes.
const textMark = "base64:"

// encode returns the body as text for SQS. It leaves a body unchanged that SQS can carry,
// so that a person can read it in the console. It encodes any other body.
func encode(body []byte) string {
	if isText(body) && !strings.HasPrefix(string(body), textMark) {
		return string(body)
	}
	return textMark + base64.StdEncoding.EncodeToString(body)
}

// isText reports whether SQS accepts the bytes as characters and returns them unchanged.
// These are the characters of XML 1.0 (SendMessage, MessageBody), except the carriage
// return, which an XML reader replaces with a line feed.
func isText(body []byte) bool {
	for len(body) > 0 {
		r, size := utf8.DecodeRune(body)
		switch {
		case r == utf8.RuneError && size == 1: // not UTF-8
			return false
		case r < ' ' && r != '\t' && r != '\n', r == 0xFFFE, r == 0xFFFF:
			return false
		}
		body = body[size:]
	}
	return true
}

// decode is the inverse of encode. It returns text from another sender unchanged if the
// text only looks like base64.
func decode(text string) []byte {
	if encoded, ok := strings.CutPrefix(text, textMark); ok {
		if body, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			return body
		}
	}
	return []byte(text)
}

// handle identifies one delivery of a message in SQS.
type handle struct {
	message string // id of the message
	value   string // the receipt handle
}

// receipt adds a checksum that binds the handle to the queue. Otherwise SQS would treat a
// handle of another queue's message like that of a deleted message, and some servers would
// accept a changed handle.
func (h handle) receipt(name string) string {
	sum := sha256.Sum256([]byte(name + "\x00" + h.message + "\x00" + h.value))
	return base64.RawURLEncoding.EncodeToString(sum[:12]) + "." + h.message + "." + h.value
}

// readReceipt returns the handle in a receipt of the queue, or ErrReceipt.
func readReceipt(name, receipt string) (handle, error) {
	_, rest, _ := strings.Cut(receipt, ".")
	message, value, _ := strings.Cut(rest, ".") // SQS's identifiers are UUIDs
	h := handle{message, value}
	if value == "" || h.receipt(name) != receipt {
		return handle{}, queue.ErrReceipt
	}
	return h, nil
}
