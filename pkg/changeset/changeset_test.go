package changeset_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/changeset"
)

func decode(t *testing.T, s string) any {
	t.Helper()
	var v any
	dec := json.NewDecoder(strings.NewReader(s))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// mask hides two secrets of the job that no tool marks.
func mask(s string) string {
	return strings.NewReplacer("hunter22", changeset.Sensitive, "7654000", changeset.Sensitive).Replace(s)
}

func encode(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestValuesShowWhatDiffersAndNoSecret(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after                        string
		unknown, beforeSecret, afterSecret   string // marks
		wantBefore, wantAfter                string
		wantChanged, wantUnknown, wantSecret string
	}{
		"created": {before: `null`, after: `{"a":1,"b":"x"}`, unknown: `{"id":true}`,
			wantAfter: `{"a":1,"b":"x","id":"(known after apply)"}`, wantUnknown: "/id"},
		"updated: unchanged attributes are left out": {before: `{"a":1,"b":"x","id":"i"}`, after: `{"a":1,"b":"y","id":"i"}`,
			wantBefore: `{"b":"x"}`, wantAfter: `{"b":"y"}`, wantChanged: "/b"},
		"updated below: so are unchanged attributes there": {before: `{"spec":{"n":1,"m":2}}`, after: `{"spec":{"n":1,"m":3}}`,
			wantBefore: `{"spec":{"m":2}}`, wantAfter: `{"spec":{"m":3}}`, wantChanged: "/spec/m"},
		"an attribute is added, another removed": {before: `{"a":1}`, after: `{"b":2}`,
			wantBefore: `{"a":1}`, wantAfter: `{"b":2}`, wantChanged: "/a /b"},
		"an element of a list: the pointer is exact, the list whole": {before: `{"l":[{"i":"a:1","n":1},2]}`, after: `{"l":[{"i":"a:2","n":1},2]}`,
			wantBefore: `{"l":[{"i":"a:1","n":1},2]}`, wantAfter: `{"l":[{"i":"a:2","n":1},2]}`, wantChanged: "/l/0/i"},
		"a longer list": {before: `{"l":[1]}`, after: `{"l":[1,2]}`,
			wantBefore: `{"l":[1]}`, wantAfter: `{"l":[1,2]}`, wantChanged: "/l"},
		"a secret that changes": {before: `{"p":"old","q":1}`, after: `{"p":"new","q":1}`, beforeSecret: `{"p":true}`, afterSecret: `{"p":true}`,
			wantBefore: `{"p":"(sensitive)"}`, wantAfter: `{"p":"(sensitive)"}`, wantChanged: "/p", wantSecret: "/p"},
		"a secret that does not change": {before: `{"p":"old","q":1}`, after: `{"p":"old","q":2}`, beforeSecret: `{"p":true}`, afterSecret: `{"p":true}`,
			wantBefore: `{"q":1}`, wantAfter: `{"q":2}`, wantChanged: "/q"},
		"a value that becomes secret: the earlier value may be the same secret": {before: `{"p":"old"}`, after: `{"p":"new"}`, afterSecret: `{"p":true}`,
			wantBefore: `{"p":"(sensitive)"}`, wantAfter: `{"p":"(sensitive)"}`, wantChanged: "/p", wantSecret: "/p"},
		"a secret within a list": {before: `null`, after: `{"l":[{"p":"new","n":1},2]}`, afterSecret: `{"l":[{"p":true}]}`,
			wantAfter: `{"l":[{"n":1,"p":"(sensitive)"},2]}`, wantSecret: "/l/0/p"},
		"the whole value is secret": {before: `{"a":1}`, after: `{"a":2}`, beforeSecret: `true`, afterSecret: `true`,
			wantBefore: `"(sensitive)"`, wantAfter: `"(sensitive)"`, wantChanged: "", wantSecret: ""},
		"a secret that is unknown": {before: `null`, after: `{}`, unknown: `{"p":true}`, afterSecret: `{"p":true}`,
			wantAfter: `{"p":"(sensitive)"}`, wantSecret: "/p"},
		"an update to an unknown value": {before: `{"a":1}`, after: `{}`, unknown: `{"a":true}`,
			wantBefore: `{"a":1}`, wantAfter: `{"a":"(known after apply)"}`, wantChanged: "/a", wantUnknown: "/a"},
		"the job's secret, which no tool marks": {before: `null`, after: `{"a":"x hunter22 y","n":7654000}`,
			wantAfter: `{"a":"x (sensitive) y","n":"(sensitive)"}`, wantSecret: "/a /n"},
		"the job's secret in a name": {before: `null`, after: `{"hunter22":1}`, wantAfter: `{"(sensitive)":1}`},
		"a number that no float could hold": {before: `null`, after: `{"n":12345678901234567890}`,
			wantAfter: `{"n":12345678901234567890}`},
		"deleted": {before: `{"a":1}`, after: `null`, wantBefore: `{"a":1}`},
		"an unknown element of a list": {before: `null`, after: `{"l":["a"]}`, unknown: `{"l":[false,true]}`,
			wantAfter: `{"l":["a","(known after apply)"]}`, wantUnknown: "/l/1"},
		"a name with a slash": {before: `{"a/b":{"c~d":1}}`, after: `{"a/b":{"c~d":2}}`,
			wantBefore: `{"a/b":{"c~d":1}}`, wantAfter: `{"a/b":{"c~d":2}}`, wantChanged: "/a~1b/c~0d"},
	} {
		t.Run(name, func(t *testing.T) {
			marks := func(s string) any {
				if s == "" {
					return nil
				}
				return decode(t, s)
			}
			var c changeset.Change
			c.SetValues(decode(t, tc.before), decode(t, tc.after),
				changeset.Marks{Unknown: marks(tc.unknown), BeforeSensitive: marks(tc.beforeSecret), AfterSensitive: marks(tc.afterSecret)}, mask)
			for what, pair := range map[string][2]string{
				"before": {encode(t, c.Before), orNull(tc.wantBefore)},
				"after":  {encode(t, c.After), orNull(tc.wantAfter)}, "changed": {strings.Join(c.Changed, " "), tc.wantChanged},
				"unknown": {strings.Join(c.Unknown, " "), tc.wantUnknown}, "sensitive": {strings.Join(c.Sensitive, " "), tc.wantSecret}} {
				if pair[0] != pair[1] {
					t.Errorf("%s: %s, want %s", what, pair[0], pair[1])
				}
			}
		})
	}
}

func orNull(s string) string {
	if s == "" {
		return "null"
	}
	return s
}

func TestActionsAreCounted(t *testing.T) {
	var b changeset.Builder
	for _, c := range []changeset.Change{{Action: changeset.Create}, {Action: changeset.Update}, {Action: changeset.Replace}, {Action: changeset.Delete},
		{Action: changeset.Import}, {Action: changeset.Import, Changed: []string{"/a"}}, {Action: changeset.Move}, {Action: changeset.Read},
		{Action: changeset.Forget}, {Action: changeset.Recover}, {Action: changeset.Run}, {Action: "from-the-future"}} {
		if err := b.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := b.Counts(), (changeset.Counts{Add: 2, Change: 3, Destroy: 2, Run: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if err := b.Output(changeset.Change{Address: "url", Action: changeset.Create}); err != nil || !b.Counts().Outputs {
		t.Errorf("%+v, %v", b.Counts(), err)
	}
}

// A person reads the set before they approve the plan, and the control plane stores it.
func TestSetIsBounded(t *testing.T) {
	var b changeset.Builder
	for i := range 5000 {
		c := changeset.Change{Address: fmt.Sprintf("x.y[%d]", i), Kind: "x", Action: changeset.Create}
		size := 100
		if i == 0 {
			size = 1 << 20
		}
		c.SetValues(nil, map[string]any{"v": strings.Repeat("z", size)}, changeset.Marks{}, mask)
		if err := b.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Add(changeset.Change{Address: strings.Repeat("a", 100<<10), Action: changeset.Create}); err != nil {
		t.Fatal(err)
	}
	s := b.Set(nil)
	if text := encode(t, s); b.Counts().Add != 5001 || len(s.Changes)+s.Omitted != 5001 || s.Omitted < 2 || len(text) > 201<<10 || !s.Changes[0].Omitted || s.Changes[1].Omitted {
		t.Errorf("%+v: %d shown, %d omitted, %d bytes", b.Counts(), len(s.Changes), s.Omitted, len(text))
	}
}

func TestSetSurvivesJSON(t *testing.T) {
	var b changeset.Builder
	if got := encode(t, b.Set(nil)); got != `{"v":2,"changes":[]}` {
		t.Errorf("an empty set is %s", got)
	}
	c := changeset.Change{Address: "aws_instance.web", Kind: "aws_instance", Action: changeset.Replace, Order: changeset.CreateFirst, Reason: "tainted"}
	c.SetValues(map[string]any{"a": "1"}, map[string]any{"a": "2"}, changeset.Marks{}, mask)
	if err := b.Add(c); err != nil {
		t.Fatal(err)
	}
	want := encode(t, b.Set(&changeset.Base{Lineage: "l", Revision: 7}))
	if got := encode(t, changeset.Parse([]byte(want))); got != want {
		t.Errorf("read as %s, want %s", got, want)
	}
}

// During an upgrade, plans of earlier runners wait for approval.
func TestSummaryOfAnEarlierRunnerIsRead(t *testing.T) {
	s := changeset.Parse([]byte(`{"v":1,"omitted":3,"resources":[
		{"address":"a.a","type":"a","actions":["create"],"after":{"n":12345678901234567890}},
		{"address":"a.b","type":"a","actions":["delete","create"],"before":{"x":1,"y":1},"after":{"x":2},"reason":"tainted"},
		{"address":"a.c","type":"a","actions":["create","delete"]},
		{"address":"a.d","type":"a","actions":["no-op"],"previous":"a.e"},
		{"address":"a.f","type":"a","actions":["no-op"]},
		{"address":"./run apply","type":"script","actions":["run"],"runs":{"command":"./run"}}],
		"outputs":[{"name":"url","actions":["update"],"before":"a","after":"b"}]}`))
	var got []string
	for _, c := range append(s.Changes, s.Outputs...) {
		got = append(got, strings.Join(append([]string{c.Address, string(c.Action), string(c.Order), c.Previous}, c.Changed...), " "))
	}
	want := "a.a create  |a.b replace delete-first  /x /y|a.c replace create-first |a.d move  a.e|./run apply run  |url update  "
	if strings.Join(got, "|") != want || s.Omitted != 3 || s.V != changeset.Version {
		t.Errorf("read as\n%s, want\n%s\n%+v", strings.Join(got, "|"), want, s)
	}
	for _, text := range []string{"", "null", "{", "[]", `{"v":2,"changes":7}`} {
		if s := changeset.Parse([]byte(text)); s != nil && len(s.Changes) > 0 {
			t.Errorf("%q is read as %+v", text, s)
		}
	}
}

func TestPathOfAPointer(t *testing.T) {
	for pointer, want := range map[string]string{"": "", "/a": "a", "/spec/ports/0/port": "spec.ports[0].port",
		"/metadata/annotations/example.com~1a": `metadata.annotations["example.com/a"]`, "/0": "[0]", "/a~0b": "a~b"} {
		if got := changeset.Path(pointer); got != want {
			t.Errorf("Path(%q) = %q, want %q", pointer, got, want)
		}
	}
}

// The texts of a change that another program has built can have a secret anywhere.
func TestMaskedHidesASecretInEveryText(t *testing.T) {
	const secret = "s3/cret~1"
	mask := func(text string) string { return strings.NewReplacer(secret, "***", "123456", "***").Replace(text) }
	c := changeset.Change{Address: "a " + secret, Kind: secret, Action: changeset.Update, Order: changeset.Order(secret), Previous: secret, Reason: secret,
		Before:  map[string]any{secret: "x", "pin": json.Number("9123456")},
		After:   map[string]any{"list": []any{"in " + secret, true, nil}},
		Changed: []string{"/list/0", "/s3~1cret~01"}, Unknown: []string{"/s3~1cret~01/x"}, Sensitive: []string{"/s3~1cret~01", "/pin"}}
	got := c.Masked(mask)
	b, err := json.Marshal(got)
	if err != nil || strings.Contains(string(b), "cret") || strings.Contains(string(b), "123456") {
		t.Errorf("the secret is in %s (%v)", b, err)
	}
	if want := []string{"/***", "/list/0", "/pin"}; !slices.Equal(got.Sensitive, want) || !slices.Equal(got.Changed, []string{"/list/0", "/***"}) {
		t.Errorf("sensitive %q, want %q; changed %q", got.Sensitive, want, got.Changed)
	}
	plain := changeset.Change{Address: "b", Action: changeset.Create, After: map[string]any{"n": json.Number("1"), "s": "x"}, Changed: []string{"/a~1b"}}
	if again := plain.Masked(mask); !reflect.DeepEqual(again, plain) {
		t.Errorf("a change without a secret becomes %+v", again)
	}
}

// A set lists the modules that a plan fetched, within its limit.
func TestFetchedModulesAreInTheSet(t *testing.T) {
	var b changeset.Builder
	few := []changeset.Module{{Address: "module.a", Source: "x/a/y", Version: "1.0.0"}, {Address: "module.b", Source: "git::https://x.io/b", Commit: strings.Repeat("1", 40)}}
	b.Fetch(few)
	if s := b.Set(nil); !slices.Equal(s.Fetched, few) || s.Omitted != 0 || len(s.Changes) != 0 {
		t.Errorf("got %+v", s)
	}
	if s := changeset.Parse([]byte(encode(t, b.Set(nil)))); s == nil || !slices.Equal(s.Fetched, few) {
		t.Errorf("after a round trip: %+v", s)
	}
	b.Fetch(slices.Repeat([]changeset.Module{{Address: "module.c", Source: strings.Repeat("c", 1000)}}, 1000))
	if s := b.Set(nil); len(encode(t, s)) > 260<<10 || len(s.Fetched)+s.Omitted != 1002 || s.Omitted == 0 {
		t.Errorf("%d bytes, %d modules, %d omitted", len(encode(t, s)), len(s.Fetched), s.Omitted)
	}
}

// A set that went over the wire keeps each digit of a number: a person signs the digest of its values.
func TestLargeNumberSurvivesTheWire(t *testing.T) {
	const text = `{"v":2,"changes":[{"address":"a","action":"create","after":{"n":9007199254740993}}]}`
	var s changeset.Set
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	for _, set := range []*changeset.Set{&s, changeset.Parse([]byte(text))} {
		if out, err := json.Marshal(set); err != nil || string(out) != text {
			t.Errorf("%s, %v", out, err)
		}
	}
}
