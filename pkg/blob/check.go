package blob

import (
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pattern"
)

const (
	// MaxKey is the maximum length of a key in bytes; S3's limit.
	MaxKey = 1024

	// MaxSegment is the maximum length of a key's segment in bytes. A file name has at most 255 bytes, and a driver may
	// need two bytes for one byte of a segment.
	MaxSegment = 120
)

var segmentPattern = pattern.New(`^[a-zA-Z0-9._=-]+$`)

// CheckKey returns an error of KindInvalid if key cannot be the key of a blob. A key is one
// or more segments joined by "/", at most MaxKey bytes long. A segment is 1 to MaxSegment
// bytes of [a-zA-Z0-9._=-], but not "." or "..".
func CheckKey(key string) error {
	if len(key) > MaxKey {
		return fairlead.Invalid(fairlead.CodeInvalidBlobKey, "the blob key has %d bytes: at most %d are allowed", len(key), MaxKey)
	}
	for segment := range strings.SplitSeq(key, "/") {
		if len(segment) > MaxSegment || segment == "." || segment == ".." || !segmentPattern.MatchString(segment) {
			return fairlead.Invalid(fairlead.CodeInvalidBlobKey, "%.200q is not a valid blob key", key)
		}
	}
	return nil
}
