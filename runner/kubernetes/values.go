package main

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// decode returns a JSON value as the libraries of Kubernetes and Helm read one from YAML: an integer is an int64, and any other
// number a float64.
func decode(raw json.RawMessage) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	return number(v)
}

func number(v any) (_ any, err error) {
	switch v := v.(type) {
	case json.Number:
		if i, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return i, nil
		}
		return v.Float64()
	case []any:
		for i := range v {
			if v[i], err = number(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for name := range v {
			if v[name], err = number(v[name]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}
