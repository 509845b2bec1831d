package sqs

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/fairlead/fairlead/pkg/queue"
)

// maxName is the longest name that SQS takes. Like ours, a name is letters,
// digits, hyphens and underscores.
const maxName = 80

// The last part of a queue's name in SQS; the second two belong to a name that
// was too long. None ends in another, so that no queue of ours can bear the
// name of another one's dead letters, and at the end they let the two stand
// side by side in a list.
const (
	liveSuffix       = "-q"
	deadSuffix       = "-dead"
	hashedLiveSuffix = "-hq"
	hashedDeadSuffix = "-hdead"
)

// hashLength is that of the hash, in hexadecimal, which stands for a name that
// is too long: 128 bits.
const hashLength = 32

// maxPrefix leaves room for a hash and the suffix.
const maxPrefix = maxName - hashLength - len(hashedDeadSuffix)

// names returns what the queue and its dead letters are called in SQS. Of
// queues with the same prefix no two share one.
func names(prefix, name string) (live, dead string) {
	base := prefix + name
	if len(base)+len(deadSuffix) <= maxName {
		return base + liveSuffix, base + deadSuffix
	}
	sum := sha256.Sum256([]byte(name))
	base = prefix + hex.EncodeToString(sum[:hashLength/2])
	return base + hashedLiveSuffix, base + hashedDeadSuffix
}

// textMark begins a body in base64. SQS takes only characters that XML does,
// and bodies are bytes.
const textMark = "base64:"

// encode returns the body as SQS takes it: as it is, which a person can read
// in the console, unless that would not come back unchanged.
func encode(body []byte) string {
	if isText(body) && !strings.HasPrefix(string(body), textMark) {
		return string(body)
	}
	return textMark + base64.StdEncoding.EncodeToString(body)
}

// isText reports whether the bytes are characters that SQS takes and gives
// back as they are: those of XML 1.0 (SendMessage, MessageBody), less the
// carriage return, which a reader of XML turns into a line feed.
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

// decode returns the body behind a message's text. A stranger's message that
// only looks encoded is what it is.
func decode(text string) []byte {
	if encoded, ok := strings.CutPrefix(text, textMark); ok {
		if body, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			return body
		}
	}
	return []byte(text)
}

// handle is SQS's name for one delivery of a message.
type handle struct {
	message string // its identifier
	value   string // the receipt handle
}

// receipt binds the handle to the queue by a checksum. SQS would take the
// handle of another queue's message for that of one that is gone, and some
// servers a mangled one.
func (h handle) receipt(name string) string {
	sum := sha256.Sum256([]byte(name + "\x00" + h.message + "\x00" + h.value))
	return base64.RawURLEncoding.EncodeToString(sum[:12]) + "." + h.message + "." + h.value
}

// readReceipt returns the handle behind a receipt of the queue, or ErrReceipt.
func readReceipt(name, receipt string) (handle, error) {
	_, rest, _ := strings.Cut(receipt, ".")
	message, value, _ := strings.Cut(rest, ".") // SQS's identifiers are UUIDs
	h := handle{message, value}
	if value == "" || h.receipt(name) != receipt {
		return handle{}, queue.ErrReceipt
	}
	return h, nil
}
