package kernel

import (
	"bytes"
	"encoding/json"
)

// EncodeJSON encodes v as json.Marshal does, but leaves <, > and & as they are: the escapes of HTML
// would make such a character six times as large, and values have limits.
func EncodeJSON(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// DecodeJSON decodes any JSON. A number is a json.Number: a float64 would lose digits
// of large ones.
func DecodeJSON(raw []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	return v, err
}
