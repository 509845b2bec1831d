package kernel

import (
	"bytes"
	"encoding/json"
)

// DecodeJSON decodes any JSON. A number is a json.Number: a float64 would lose digits
// of large ones.
func DecodeJSON(raw []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	return v, err
}
