package blob

import (
	"regexp"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

const (
	// MaxKey is the longest key, in bytes; S3's limit.
	MaxKey = 1024

	// MaxSegment is the longest segment of a key, in bytes. A file system's
	// names end at 255, and a driver may need two for one of ours.
	MaxSegment = 120
)

var segmentPattern = regexp.MustCompile(`^[a-zA-Z0-9._=-]+$`)

// CheckKey reports why key cannot name a blob: it is segments of
// [a-zA-Z0-9._=-], none of them "." or "..", of 1 to MaxSegment bytes each,
// joined by "/", and at most MaxKey bytes long. The error is of KindInvalid.
func CheckKey(key string) error {
	if len(key) > MaxKey {
		return fairlead.Invalid(fairlead.CodeInvalidBlobKey, "a blob's key of %d bytes is longer than %d", len(key), MaxKey)
	}
	for segment := range strings.SplitSeq(key, "/") {
		if len(segment) > MaxSegment || segment == "." || segment == ".." || !segmentPattern.MatchString(segment) {
			return fairlead.Invalid(fairlead.CodeInvalidBlobKey, "%.200q cannot be a blob's key", key)
		}
	}
	return nil
}
