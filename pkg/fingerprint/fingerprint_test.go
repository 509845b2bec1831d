package fingerprint_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/fingerprint"
)

func decode(t *testing.T, text string) any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func of(t *testing.T, key byte, place, text string) string {
	t.Helper()
	print, err := fingerprint.Of(bytes.Repeat([]byte{key}, fingerprint.KeySize), place, decode(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return print
}

func TestOnlyEqualValuesHaveEqualFingerprints(t *testing.T) {
	for _, equal := range [][2]string{
		{`{"a":1,"b":[true,null]}`, "{ \"b\": [true, null],\n \"a\": 1 }"},
		{`1`, `1.0`},
		{`1000000000000000000000000`, `1e24`},
		{`"<&>"`, `"\u003c\u0026\u003e"`},
	} {
		if a, b := of(t, 1, "p", equal[0]), of(t, 1, "p", equal[1]); a != b {
			t.Errorf("%s and %s have the fingerprints %s and %s", equal[0], equal[1], a, b)
		}
	}
	seen := map[string]string{}
	for _, c := range []struct {
		key         byte
		place, text string
	}{
		{1, "p", `"a"`}, {2, "p", `"a"`}, {1, "q", `"a"`}, {1, "p", `"b"`}, {1, "p", `["a"]`}, {1, "p", `1`}, {1, "p", `"1"`}, {1, "p", `true`}, {1, "p", `"true"`},
		{1, "p", `null`}, {1, "p", `[]`}, {1, "p", `{}`}, {1, "p", `9007199254740993`}, {1, "p", `9007199254740992`}, {1, "p\n\"a", `"a"`}, {1, "p\n\"a\"\n", `""`},
	} {
		print := of(t, c.key, c.place, c.text)
		if other, ok := seen[print]; ok {
			t.Errorf("%q at %q has the fingerprint of %s", c.text, c.place, other)
		}
		seen[print] = c.text + " at " + c.place
	}
}

// Stored fingerprints must be those of the next release, or each deployment would plan each component once.
func TestFingerprintsStayTheSame(t *testing.T) {
	const want = "6qGPdQxwdbLC6cf8nclSm0Nf7WuIQSkcmsLRescVVQU"
	if got := of(t, 7, "install/ins_1/input/password", `{"user":"acme","port":5432.0}`); got != want {
		t.Errorf("the fingerprint is %s, want %s", got, want)
	}
}

func TestKeyOfAnotherLengthIsRefused(t *testing.T) {
	for _, n := range []int{0, 16, 33} {
		if print, err := fingerprint.Of(make([]byte, n), "p", "hunter2"); err == nil || print != "" || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("a key of %d bytes: %q, %v", n, print, err)
		}
	}
}
