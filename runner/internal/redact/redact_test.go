package redact_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/runner/internal/redact"
)

func raw(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func TestSecretIsMaskedHoweverItIsPrinted(t *testing.T) {
	const secret = `p@ss "word"&${x}/1`
	s := redact.New(raw(secret))
	for name, text := range map[string]string{
		"as it is":                  secret,
		"in JSON":                   string(raw(map[string]string{"a": secret})),
		"in JSON within JSON":       string(raw(string(raw(secret)))),
		"in HCL":                    `p@ss \"word\"&$${x}/1`,
		"in a query":                "?p=" + url.QueryEscape(secret) + "&b=1",
		"in a path":                 "/" + url.PathEscape(secret) + "/",
		"in base64":                 base64.StdEncoding.EncodeToString([]byte(secret)),
		"in a basic authentication": base64.StdEncoding.EncodeToString([]byte("me:" + secret)),
		"wrapped at a space":        "p@ss\n  \"word\"&${x}/1",
	} {
		t.Run(name, func(t *testing.T) {
			got := s.String("before " + text + " after")
			if !strings.Contains(got, redact.Mask) || strings.Contains(got, "word") || strings.Contains(got, text) {
				t.Errorf("got %q", got)
			}
			if !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") {
				t.Errorf("the text around is gone: %q", got)
			}
		})
	}
}

// Each row is named after what was seen. The text has the secret in one form of
// a tool, between two bars.
func TestSecretIsMaskedInTheFormsOfTools(t *testing.T) {
	const secret = `p@ss "wo'rd"&<${x}>;/1` // nearly no two tools escape it alike
	upper := func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) }
	percent := func(format string) string {
		var b strings.Builder
		for i := range len(secret) {
			fmt.Fprintf(&b, format, secret[i])
		}
		return b.String()
	}
	for name, tc := range map[string]struct{ secret, text string }{
		"upper-case hex was printed":                 {secret, upper(secret)},
		"HTML with &#34; and &#39; was printed":      {secret, html.EscapeString(secret)},
		"HTML with &quot; and &#39; was printed":     {secret, `p@ss &quot;wo&#39;rd&quot;&amp;&lt;${x}&gt;;/1`},
		"HTML with &quot; and &#x27; was printed":    {secret, `p@ss &quot;wo&#x27;rd&quot;&amp;&lt;${x}&gt;;/1`},
		"HTML with &quot; and &#039; was printed":    {secret, `p@ss &quot;wo&#039;rd&quot;&amp;&lt;${x}&gt;;/1`},
		"XML with &quot; and &apos; was printed":     {secret, `p@ss &quot;wo&apos;rd&quot;&amp;&lt;${x}&gt;;/1`},
		"HTML with plain quotes was printed":         {secret, `p@ss "wo'rd"&amp;&lt;${x}&gt;;/1`},
		"HTML with &quot; and ' was printed":         {secret, `p@ss &quot;wo'rd&quot;&amp;&lt;${x}&gt;;/1`},
		"printf %q of bash was printed":              {secret, `p@ss\ \"wo\'rd\"\&\<\$\{x\}\>\;/1`},
		"shell double quotes were printed":           {secret, `p@ss \"wo'rd\"&<\${x}>;/1`},
		"a grave in double quotes was printed":       {"a`b\\c$d", "a\\`b\\\\c\\$d"},
		"shell single quotes were printed":           {secret, `p@ss "wo'\''rd"&<${x}>;/1`},
		"single quotes in double were printed":       {secret, `p@ss "wo'"'"'rd"&<${x}>;/1`},
		"$'…' of bash was printed":                   {"it's\na \\ \x1b", `it\'s\na \\ \E`},
		"%XX of each byte was printed":               {secret, percent("%%%02X")},
		"%xx of each byte was printed":               {secret, percent("%%%02x")},
		"a query with lower-case digits was printed": {secret, "p%40ss+%22wo%27rd%22%26%3c%24%7bx%7d%3e%3b%2f1"},
		"a query with %20 was printed":               {secret, "p%40ss%20%22wo%27rd%22%26%3C%24%7Bx%7D%3E%3B%2F1"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := redact.New(raw(tc.secret)).String("|" + tc.text + "|"); got != "|"+redact.Mask+"|" {
				t.Errorf("%q is printed as %q", tc.text, got)
			}
		})
	}
}

func TestWhatIsASecret(t *testing.T) {
	for name, tc := range map[string]struct {
		secret     any
		text, want string
	}{
		"a line of a longer one":         {"-----BEGIN-----\nabcdef123\n}\n", "x: abcdef123", "x: (sensitive)"},
		"a short line is not":            {"abcdefgh\n}\n", "a } b", "a } b"},
		"strings within an object":       {map[string]any{"k": []any{"inner-one"}}, "k inner-one", "k (sensitive)"},
		"a number":                       {123456, "n=123456", "n=(sensitive)"},
		"a short value is not":           {"on", "on and on", "on and on"},
		"a boolean is not":               {true, "true", "true"},
		"the longer of two that begin":   {[]string{"abcd", "abcdef"}, "abcdefg", "(sensitive)g"},
		"both of two that overlap":       {[]string{"abcd", "bcdef"}, "abcdefg", "(sensitive)g"},
		"a token of ours":                {"none", "t=flr_0123456789abcdefXYZ.", "t=(sensitive)"},
		"a token that a value runs into": {"abcdfl", "abcdflr_0123456789abcdefXYZ", "(sensitive)"},
		"a token's name is not":          {"none", "fl_oat flx_short", "fl_oat flx_short"},
		"a beginning that is not one":    {"abcdabcx", "abcdabcdabcx", "abcd(sensitive)"},
		"a secret at once after another": {"abcd", "abcdabcd", "(sensitive)(sensitive)"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := redact.New(raw(tc.secret)).String(tc.text); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// FuzzNoSplitLeaks: whatever the writes, the same comes out as for one write,
// and a secret is not in it.
func FuzzNoSplitLeaks(f *testing.F) {
	f.Add("hunter2secret", "a hunter2secret b", uint8(3), uint8(7))
	f.Add("abab", "ababab flr_0123456789abcdefghij", uint8(1), uint8(1))
	f.Add("two words", "two\n words two words", uint8(2), uint8(5))
	f.Add("line one\nline two", "line one\nline two\n", uint8(4), uint8(9))
	f.Fuzz(func(t *testing.T, secret, text string, a, b uint8) {
		if len(secret) > 100 || len(text) > 1000 {
			return
		}
		s := redact.New(raw(secret))
		whole := s.String(text)
		var out bytes.Buffer
		w := s.NewWriter(&out)
		steps := []int{int(a)%7 + 1, int(b)%13 + 1}
		for i, rest := 0, []byte(text); len(rest) > 0; i++ {
			n := min(len(rest), steps[i%2])
			if _, err := w.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if out.String() != whole {
			t.Fatalf("in pieces %q, whole %q", out.String(), whole)
		}
		plain := strings.TrimSpace(secret)
		if len(plain) >= 4 && !strings.Contains(redact.Mask, plain) && !strings.Contains(strings.ReplaceAll(text, plain, ""), plain) {
			if strings.Contains(strings.ReplaceAll(whole, redact.Mask, "\x00"), plain) {
				t.Fatalf("%q is in %q", plain, whole)
			}
		}
	})
}

func BenchmarkPlainText(b *testing.B) {
	s := redact.New(raw("a-long-password-1"), raw("another-one-of-them"))
	line := []byte(strings.Repeat("terraform_data.example: Creation complete after 0s [id=6f1c]\n", 100))
	w := s.NewWriter(&bytes.Buffer{})
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if _, err := w.Write(line); err != nil {
			b.Fatal(err)
		}
	}
}

// A credential that the job was given in its middle is masked from then on,
// also where its beginning was written before.
func TestSecretThatIsAddedLater(t *testing.T) {
	set := redact.New(json.RawMessage(`"first-secret"`))
	var out strings.Builder
	w := set.NewWriter(&out)
	io.WriteString(w, "a late-comer passes; ")
	set.Add("late-comer\"quoted")
	io.WriteString(w, "a late-comer\"quoted, a late-comer\\\"quoted and a first-secret do not")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if want := "a late-comer passes; a (sensitive), a (sensitive) and a (sensitive) do not"; out.String() != want {
		t.Errorf("got %q", out.String())
	}
}

// A secret of 100 KB took 350 MB: a step in a container was killed for it.
func TestALongSecretTookThousandsOfTimesItsSize(t *testing.T) {
	const size, times = 100_000, 100
	secret := make([]byte, 0, size)
	for n := 0; len(secret) < size; n++ { // nothing twice, as in random bytes
		secret = fmt.Appendf(secret, "%016x%048x\n", sha256.Sum256([]byte{byte(n), byte(n >> 8)}), n)
	}
	value, err := json.Marshal(string(secret))
	if err != nil {
		t.Fatal(err)
	}
	held := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := held()
	set := redact.New(value)
	if now := held(); now > before+size*times {
		t.Errorf("a secret of %d bytes takes %d", size, now-before)
	}
	if got := set.String("x " + string(secret)); strings.TrimSpace(got) != "x "+redact.Mask {
		t.Errorf("it is printed as %.100q", got)
	}
}
