// Package tree defines the allowed content of an artifact, and unpacks artifacts. It is separate from package artifact
// because each job's process imports it and pays for its imports at each start.
package tree

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Limits are the limits of packing and unpacking. A zero field has the default in its
// comment.
type Limits struct {
	Entries   int   // files and directories that are read; default 10,000
	Bytes     int64 // content of all files together; default 64 MiB
	FileBytes int64 // content of one file; default 64 MiB
	Depth     int   // number of segments of a path; default 32
	PathBytes int   // length of a path in bytes; default 512, because the path of the workspace is added and Linux allows 4,096
}

// maxSegment is the maximum length of a file name in bytes: the limit of every common file
// system.
const maxSegment = 255

// entryOverhead is the maximum number of bytes that a tar needs for one file in addition to
// its content. The bytes are two headers of 512 bytes each, the extended header's records
// for one path, and the padding of the records and of the content to a multiple of 512.
const entryOverhead = 4096

// WithDefaults returns the limits with the default in each zero field.
func (l Limits) WithDefaults() Limits {
	return Limits{
		Entries:   cmp.Or(l.Entries, 10_000),
		Bytes:     cmp.Or(l.Bytes, 64<<20),
		FileBytes: cmp.Or(l.FileBytes, 64<<20),
		Depth:     cmp.Or(l.Depth, 32),
		PathBytes: cmp.Or(l.PathBytes, 512),
	}
}

// TarBytes returns the size of the largest tar that the limits allow.
func (l Limits) TarBytes() int64 {
	return l.Bytes + int64(l.Entries)*entryOverhead + 1024
}

// PathCodes are the error codes of CheckPath. They differ for a source folder and for an artifact.
type PathCodes struct{ TooLong, TooDeep, Name fairlead.Code }

// SourcePath returns the codes of a path in a folder that is packed.
func SourcePath() PathCodes {
	return PathCodes{fairlead.CodeSourcePathTooLong, fairlead.CodeSourceTooDeep, fairlead.CodeSourceName}
}

// ArtifactPath returns the codes of a path in an artifact that is unpacked.
func ArtifactPath() PathCodes {
	return PathCodes{fairlead.CodeArtifactPathTooLong, fairlead.CodeArtifactTooDeep, fairlead.CodeArtifactName}
}

// CheckPath returns an error if a clean relative path is not allowed in an artifact.
func (l Limits) CheckPath(code PathCodes, path string) error {
	switch {
	case len(path) > l.PathBytes:
		return Invalid(code.TooLong, "Use shorter names.",
			"the path %q is %d bytes long, the limit is %d", Abbreviate(path), len(path), l.PathBytes)
	case strings.Count(path, "/")+1 > l.Depth:
		return Invalid(code.TooDeep, "Use fewer nested folders.",
			"the path %q is nested %d deep, the limit is %d", Abbreviate(path), strings.Count(path, "/")+1, l.Depth)
	case !utf8.ValidString(path):
		return Invalid(code.Name, "Rename the file.", "the path %q is not valid UTF-8", Abbreviate(path))
	}
	for _, r := range path {
		if r == '\\' || unicode.IsControl(r) {
			return Invalid(code.Name, "Rename the file.",
				"the path %q contains the character %q, which some systems do not allow in a name", Abbreviate(path), r)
		}
	}
	for segment := range strings.SplitSeq(path, "/") {
		if len(segment) > maxSegment {
			return Invalid(code.TooLong, "Use shorter names.",
				"the name %q is %d bytes long, the limit is %d", Abbreviate(segment), len(segment), maxSegment)
		}
	}
	return nil
}

// Names finds two paths that are the same path on a file system that ignores case or the
// composition of letters. A folder with two such paths cannot be unpacked on every runner.
type Names map[string]string

// Add records a file's path and its parent directories, and returns ok. If the path or a
// parent directory is already recorded with another spelling, ok is false, and earlier is
// the recorded spelling. If the path itself is already recorded, ok is false, and earlier is
// the path.
func (n Names) Add(path string) (earlier string, ok bool) {
	for i, r := range path {
		if r != '/' {
			continue
		}
		dir, folded := path[:i], fold(path[:i])
		if known, seen := n[folded]; seen && known != dir+"/" {
			return known, false
		}
		n[folded] = dir + "/"
	}
	folded := fold(path)
	if known, seen := n[folded]; seen {
		return known, false
	}
	n[folded] = path
	return "", true
}

// fold returns the same text for all paths that some file systems treat as the same path.
// It uses Unicode's canonical caseless matching, as APFS and a case-folding ext4 do.
func fold(path string) string {
	for i := range len(path) {
		if path[i] >= utf8.RuneSelf {
			return norm.NFD.String(cases.Fold().String(norm.NFD.String(path)))
		}
	}
	return strings.ToLower(path)
}

// Abbreviate shortens a name from an untrusted source for a message.
func Abbreviate(s string) string {
	const most = 120
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

// Invalid returns an error of KindInvalid.
func Invalid(code fairlead.Code, hint, format string, args ...any) *fairlead.Error {
	return &fairlead.Error{Kind: fairlead.KindInvalid, Code: code, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// FormatBytes formats a limit for a message, in whole binary units if possible.
func FormatBytes(n int64) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}
