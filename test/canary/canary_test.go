package canary_test

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/fairlead/fairlead/pkg/seal"
	"github.com/fairlead/fairlead/test/canary"
)

var secret = bytes.Repeat([]byte("key!"), seal.KeySize/4)

func sealed(t *testing.T, value, place string) []byte {
	t.Helper()
	key, err := seal.NewKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	out, err := seal.NewKeyring(key).Seal(t.Context(), []byte(value), place)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func packed(t *testing.T, w io.WriteCloser, out *bytes.Buffer, value string) string {
	t.Helper()
	if _, err := io.WriteString(w, value); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// A search that overlooks a form would make a test pass that finds no secret.
func TestEachFormIsFound(t *testing.T) {
	text := canary.Text("input")
	value := `"quoted" <` + text + `> é`
	gzipped := func(v string) string { var out bytes.Buffer; return packed(t, gzip.NewWriter(&out), &out, v) }
	zstandard := func(v string) string {
		var out bytes.Buffer
		w, err := zstd.NewWriter(&out)
		if err != nil {
			t.Fatal(err)
		}
		return packed(t, w, &out, v)
	}
	zipped := func(v string) string {
		var out bytes.Buffer
		w := zip.NewWriter(&out)
		f, err := w.Create("tfplan")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, v); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	b64 := base64.StdEncoding.EncodeToString
	escaped, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	unicode, percent := "", ""
	for _, c := range text {
		unicode += fmt.Sprintf(`\u%04x`, c)
		percent += fmt.Sprintf("%%%02X", c)
	}
	bound := sealed(t, value, "input/x")
	const clear, opened, none = "[input]", "[input (opened)]", "[]"
	for name, c := range map[string]struct{ content, want string }{
		"in clear":                          {"x" + value + "x", clear},
		"in JSON":                           {string(escaped), clear},
		"each letter escaped in JSON":       {unicode, clear},
		"in a URL":                          {url.QueryEscape(value), clear},
		"each letter escaped in a URL":      {percent, clear},
		"in hex":                            {hex.EncodeToString([]byte(value)), clear},
		"in base64":                         {b64([]byte(value)), clear},
		"in base64, one byte later":         {b64([]byte("x" + value)), clear},
		"in base64, two bytes later":        {b64([]byte("xx" + value)), clear},
		"in base64 of URLs":                 {base64.RawURLEncoding.EncodeToString([]byte("?>?" + value)), clear},
		"in base64 twice, after a path":     {"/a/" + b64([]byte(b64([]byte(value)))), clear},
		"in gzip, after other bytes":        {"xyz" + gzipped(value), clear},
		"in zstd":                           {zstandard(value), clear},
		"in a zip archive":                  {zipped(strings.Repeat(value, 30)), clear},
		"in a cut zip archive":              {zipped(strings.Repeat(value, 30))[:150], clear},
		"gzip in base64 in JSON in gzip":    {gzipped(`{"a":"` + b64([]byte(gzipped(value))) + `"}`), clear},
		"sealed":                            {string(bound), opened},
		"sealed, in a page of a database":   {"page" + string(bound) + "rest", opened},
		"sealed, in base64 in JSON":         {`{"sealed":"` + b64(bound) + `"}`, opened},
		"gzip, sealed":                      {string(sealed(t, gzipped(value), "blob")), opened},
		"sealed twice":                      {string(sealed(t, string(bound), "blob")), opened},
		"sealed and in clear":               {string(bound) + value, clear},
		"its hash":                          {canary.Text("other"), none},
		"a part of it":                      {text[:len(text)-1], none},
		"sealed, with another key's header": {strings.Replace(string(bound), string(bound[1:9]), "otherkey", 1), none},
	} {
		t.Run(name, func(t *testing.T) {
			search := canary.New(map[string]string{"input": text}, canary.Seal(t, secret, 0))
			if got := fmt.Sprint(canary.Names(search.In([]byte(c.content)))); got != c.want {
				t.Errorf("found %s, want %s", got, c.want)
			}
			if without := canary.New(map[string]string{"input": text}); c.want == opened && len(without.In([]byte(c.content))) > 0 {
				t.Error("found without the key")
			}
		})
	}
}

// A data key of a key service opens the values that it sealed, at any place in a content. A key that the service refuses opens nothing.
func TestKeyServiceOpensItsValues(t *testing.T) {
	text := canary.Text("input")
	const prefix = "12345678-key-id"
	block, err := aes.NewCipher(secret)
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	value := func(wrapped string) string {
		nonce := bytes.Repeat([]byte{7}, aead.NonceSize())
		return "before\x02\x00" + string(rune(len(wrapped))) + wrapped + string(aead.Seal(nonce, nonce, []byte("a "+text+" b"), nil)) + "after"
	}
	asked := 0
	search := canary.New(map[string]string{"input": text}, canary.KMS(t, prefix, func(wrapped []byte) ([]byte, bool) {
		asked++
		return secret, string(wrapped) == prefix+" wrapped"
	}, 0))
	for range 2 {
		if got := canary.Names(search.In([]byte(value(prefix + " wrapped")))); len(got) != 1 || got[0] != "input (opened)" {
			t.Errorf("the value of the data key has %q", got)
		}
	}
	if asked != 1 {
		t.Errorf("the key service was asked %d times for one data key", asked)
	}
	for what, content := range map[string]string{"a refused key": value(prefix + " refused"), "a key of another service": value("87654321 wrapped"), "a cut value": value(prefix + " wrapped")[:20], "a prefix alone": prefix} {
		if got := canary.Names(search.In([]byte(content))); len(got) > 0 {
			t.Errorf("%s has %q", what, got)
		}
	}
}
