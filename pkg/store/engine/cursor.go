package engine

import (
	"encoding/base64"
	"encoding/json"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// WriteCursor encodes parts, from which an engine continues after a page, as an
// opaque string that is safe in a URL. Parts can contain any bytes.
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

// ReadCursor decodes a cursor that WriteCursor made of n parts. For any other
// string, which a client can send, it returns an error of KindInvalid.
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
