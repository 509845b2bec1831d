package store

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// part and record are what this code knows of a record.
type part struct {
	Name string `json:"name"`
	Size int64  `json:"size,omitempty"`
}

type record struct {
	Name  string          `json:"name"`
	Count int64           `json:"count,omitempty"`
	Part  part            `json:"part"`
	Parts []part          `json:"parts,omitempty"`
	Named map[string]part `json:"named,omitempty"`
}

// Old code changes a record that newer code wrote. All fields that it does not know must survive,
// and what it changes must be changed.
func TestUnknownFieldsSurviveAWrite(t *testing.T) {
	for _, tt := range []struct {
		name   string
		stored string // without the schema
		edit   func(*record)
		want   string
	}{
		{"a field of the record", `"name":"a","part":{"name":"p"},"later":[1,{"x":2}]`, func(r *record) { r.Name = "b" },
			`{"schema":"1.7","later":[1,{"x":2}],"name":"b","part":{"name":"p"}}`},
		{"a field of an inner object", `"name":"a","part":{"name":"p","later":true}`, func(r *record) { r.Part.Size = 3 },
			`{"schema":"1.7","name":"a","part":{"later":true,"name":"p","size":3}}`},
		{"an integer that no float can hold", `"name":"a","part":{"name":"p"},"later":9007199254740993`, func(r *record) { r.Count = 9007199254740995 },
			`{"schema":"1.7","count":9007199254740995,"later":9007199254740993,"name":"a","part":{"name":"p"}}`},
		{"a known field that is cleared stays cleared", `"name":"a","count":4,"part":{"name":"p"},"later":1`, func(r *record) { r.Count = 0 },
			`{"schema":"1.7","later":1,"name":"a","part":{"name":"p"}}`},
		{"an element changes in its place", `"name":"a","part":{"name":"p"},"parts":[{"name":"x","later":1},{"name":"y","later":2}]`, func(r *record) { r.Parts[1].Size = 5 },
			`{"schema":"1.7","name":"a","part":{"name":"p"},"parts":[{"later":1,"name":"x"},{"later":2,"name":"y","size":5}]}`},
		{"the first element is removed and another appended", `"name":"a","part":{"name":"p"},"parts":[{"name":"x","later":1},{"name":"y","later":2}]`,
			func(r *record) { r.Parts = append(r.Parts[1:], part{Name: "z"}) },
			`{"schema":"1.7","name":"a","part":{"name":"p"},"parts":[{"later":2,"name":"y"},{"name":"z"}]}`},
		{"an entry of a map is removed", `"name":"a","part":{"name":"p"},"named":{"x":{"name":"x","later":1},"y":{"name":"y","later":2}}`, func(r *record) { delete(r.Named, "x") },
			`{"schema":"1.7","name":"a","named":{"y":{"later":2,"name":"y"}},"part":{"name":"p"}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := decode[record](engine.Item{Version: 3, Body: []byte(`{"schema":"1.7",` + tt.stored + `}`)})
			if err != nil {
				t.Fatal(err)
			}
			tt.edit(&r.V)
			if got, err := encode(r); err != nil || string(got) != tt.want {
				t.Errorf("stored %s, %v\nwant   %s", got, err, tt.want)
			}
		})
	}
}

func TestSchemaDecidesWhatIsRead(t *testing.T) {
	for _, tt := range []struct {
		name, body, schema string // schema: that of the next write; "": the item is refused
		code               fairlead.Code
	}{
		{"an item from before schemas", `{"name":"a"}`, "1.0", ""},
		{"an item of this schema", `{"schema":"1.0","name":"a"}`, "1.0", ""},
		{"an item of a newer minor number", `{"schema":"1.12","name":"a"}`, "1.12", ""},
		{"an item of a newer major number", `{"schema":"2.0","name":"a"}`, "", fairlead.CodeNewerSchema},
		{"an item of a newer major number in another form", `{"schema":"2.0","name":["a"]}`, "", fairlead.CodeNewerSchema},
		{"no schema that this or a later version writes", `{"schema":"next","name":"a"}`, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := decode[record](engine.Item{Key: engine.Key{Partition: "P", Sort: "S"}, Version: 1, Body: []byte(tt.body)})
			if tt.schema == "" {
				if err == nil || !strings.Contains(err.Error(), "P/S") || fairlead.CodeOf(err) != tt.code {
					t.Errorf("got %v with code %q, want an error with code %q that names the item", err, fairlead.CodeOf(err), tt.code)
				}
				return
			}
			if err != nil || r.V.Name != "a" {
				t.Fatalf("got %+v, %v", r, err)
			}
			body, err := encode(r)
			var got struct {
				Schema string `json:"schema"`
			}
			if err != nil || json.Unmarshal(body, &got) != nil || got.Schema != tt.schema {
				t.Errorf("the next write is %s, %v; want schema %s", body, err, tt.schema)
			}
		})
	}
}
