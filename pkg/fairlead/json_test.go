package fairlead_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

func TestJSONErrorHasNoTermsOfGo(t *testing.T) {
	var v struct {
		Count int64           `json:"count"`
		Names []string        `json:"names"`
		On    bool            `json:"on"`
		Sizes map[string]any  `json:"sizes"`
		In    struct{ A int } `json:"in"`
	}
	for text, want := range map[string]string{
		`{"count":1.0}`:                  "count must be a whole number in its range, without point and exponent",
		`{"count":99999999999999999999}`: "count must be a whole number in its range, without point and exponent",
		`{"names":"x"}`:                  "names must be a list",
		`{"names":[1]}`:                  "names must be a string",
		`{"on":1}`:                       "on must be true or false",
		`{"sizes":[]}`:                   "sizes must be an object",
		`{"in":{"A":"x"}}`:               "in.A must be a whole number in its range, without point and exponent",
		`[]`:                             "the document must be an object",
		`{"other":1}`:                    `unknown field "other"`,
		`{"count":`:                      "unexpected EOF",
		`{}`:                             "",
	} {
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		got := ""
		if err := fairlead.JSONError(d.Decode(&v)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
