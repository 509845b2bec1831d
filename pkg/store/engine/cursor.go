package engine

import (
	"encoding/base64"
	"encoding/json"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// WriteCursor encodes parts as an opaque string that is safe in a URL. An
// engine uses the parts to continue after a page. Parts can contain any bytes.
func WriteCursor(parts ...string) string {
	raw := make([][]byte, len(parts))
	for i, p := range parts {
		raw[i] = []byte(p)
	}
	b, err := json.Marshal(raw)
	if err != nil {
		panic(err) // byte slices always marshal
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// ReadCursor decodes a cursor that WriteCursor made of n parts. A client can
// also send any other string. For such a string ReadCursor returns an error of
// KindInvalid.
func ReadCursor(cursor string, n int) ([]string, error) {
	var raw [][]byte
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		err = json.Unmarshal(b, &raw)
	}
	if err != nil || len(raw) != n {
		return nil, &fairlead.Error{
			Kind: fairlead.KindInvalid, Code: fairlead.CodeBadCursor,
			Message: "the cursor is not from this list",
			Hint:    "Start again from the first page.",
			Err:     err,
		}
	}
	parts := make([]string, n)
	for i, p := range raw {
		parts[i] = string(p)
	}
	return parts, nil
}
