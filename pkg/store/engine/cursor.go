package engine

import (
	"encoding/base64"
	"encoding/json"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// WriteCursor packs what an engine needs to go on after a page into an opaque
// string that is safe in a URL. Parts may hold any bytes.
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

// ReadCursor takes apart a cursor that WriteCursor made of n parts. Anything
// else, which a client may send, is an error of KindInvalid.
func ReadCursor(cursor string, n int) ([]string, error) {
	var raw [][]byte
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		err = json.Unmarshal(b, &raw)
	}
	if err != nil || len(raw) != n {
		return nil, &fairlead.Error{
			Kind: fairlead.KindInvalid, Code: fairlead.CodeBadCursor,
			Message: "the cursor is not one that this list gave out",
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
