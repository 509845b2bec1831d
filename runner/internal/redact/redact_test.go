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
	"maps"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/runner/internal/redact"
)

// raw returns v as JSON.
func raw(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func TestSecretIsMaskedInEveryEncoding(t *testing.T) {
	const secret = `p@ss "term"&${x}/1`
	s := redact.New(raw(secret))
	for name, text := range map[string]string{
		"plain":                     secret,
		"in JSON":                   string(raw(map[string]string{"a": secret})),
		"in JSON within JSON":       string(raw(string(raw(secret)))),
		"in HCL":                    `p@ss \"term\"&$${x}/1`,
		"in a query":                "?p=" + url.QueryEscape(secret) + "&b=1",
		"in a path":                 "/" + url.PathEscape(secret) + "/",
		"in base64":                 base64.StdEncoding.EncodeToString([]byte(secret)),
		"in a basic authentication": base64.StdEncoding.EncodeToString([]byte("me:" + secret)),
		"wrapped at a space":        "p@ss\n  \"term\"&${x}/1",
	} {
		t.Run(name, func(t *testing.T) {
			got := s.String("before " + text + " after")
			if !strings.Contains(got, redact.Mask) || strings.Contains(got, "term") || strings.Contains(got, text) {
				t.Errorf("got %q, want the secret masked", got)
			}
			if !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") {
				t.Errorf("the text around the secret was changed: %q", got)
			}
		})
	}
}

// Each row has the secret in the form that one tool prints. The test puts it between two bars.
func TestSecretIsMaskedInTheFormsOfTools(t *testing.T) {
	const secret = `p@ss "wo'rd"&<${x}>;/1` // nearly every tool escapes this secret differently
	upper := func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) }
	percent := func(format string) string {
		var b strings.Builder
		for i := range len(secret) {
			fmt.Fprintf(&b, format, secret[i])
		}
		return b.String()
	}
	for name, tc := range map[string]struct{ secret, text string }{
		"upper-case hex":                 {secret, upper(secret)},
		"HTML with &#34; and &#39;":      {secret, html.EscapeString(secret)},
		"HTML with &quot; and &#39;":     {secret, `p@ss &quot;wo&#39;rd&quot;&amp;&lt;${x}&gt;;/1`},
		"HTML with &quot; and &#x27;":    {secret, `p@ss &quot;wo&#x27;rd&quot;&amp;&lt;${x}&gt;;/1`},
		"HTML with &quot; and &#039;":    {secret, `p@ss &quot;wo&#039;rd&quot;&amp;&lt;${x}&gt;;/1`},
		"XML with &quot; and &apos;":     {secret, `p@ss &quot;wo&apos;rd&quot;&amp;&lt;${x}&gt;;/1`},
		"HTML with plain quotes":         {secret, `p@ss "wo'rd"&amp;&lt;${x}&gt;;/1`},
		"HTML with &quot; and '":         {secret, `p@ss &quot;wo'rd&quot;&amp;&lt;${x}&gt;;/1`},
		"printf %q of bash":              {secret, `p@ss\ \"wo\'rd\"\&\<\$\{x\}\>\;/1`},
		"shell double quotes":            {secret, `p@ss \"wo'rd\"&<\${x}>;/1`},
		"a grave in double quotes":       {"a`b\\c$d", "a\\`b\\\\c\\$d"},
		"shell single quotes":            {secret, `p@ss "wo'\''rd"&<${x}>;/1`},
		"single quotes in double":        {secret, `p@ss "wo'"'"'rd"&<${x}>;/1`},
		"$'…' of bash":                   {"it's\na \\ \x1b", `it\'s\na \\ \E`},
		"%XX of each byte":               {secret, percent("%%%02X")},
		"%xx of each byte":               {secret, percent("%%%02x")},
		"a query with lower-case digits": {secret, "p%40ss+%22wo%27rd%22%26%3c%24%7bx%7d%3e%3b%2f1"},
		"a query with %20":               {secret, "p%40ss%20%22wo%27rd%22%26%3C%24%7Bx%7D%3E%3B%2F1"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := redact.New(raw(tc.secret)).String("|" + tc.text + "|"); got != "|"+redact.Mask+"|" {
				t.Errorf("%q is masked as %q, want one mask", tc.text, got)
			}
		})
	}
}

// wrap splits text into lines of width bytes, with sep between them.
func wrap(text string, width int, sep string) string {
	var lines []string
	for ; len(text) > width; text = text[width:] {
		lines = append(lines, text[:width])
	}
	return strings.Join(append(lines, text), sep)
}

// Each row has the secret with line breaks in it. The test puts it between two bars.
func TestSecretIsMaskedAcrossLines(t *testing.T) {
	const plain = "hunter2-and-more"
	long := strings.Repeat("0123456789 a long secret, such as a key; ", 9) + "."
	encoded := base64.StdEncoding.EncodeToString([]byte(long))
	within := base64.StdEncoding.EncodeToString([]byte("user:" + long))
	for name, tc := range map[string]struct{ secret, text, want string }{
		"base64 of 76 columns":               {long, wrap(encoded, 76, "\n"), "|(sensitive)|"},
		"base64 of 64 columns":               {long, wrap(encoded, 64, "\n"), "|(sensitive)|"},
		"base64 of 76 columns and CRLF":      {long, wrap(encoded, 76, "\r\n"), "|(sensitive)|"},
		"base64 with indentation":            {long, wrap(encoded, 76, "\n\t    "), "|(sensitive)|"},
		"base64 of 64, CRLF, indented":       {long, wrap(encoded, 64, "\r\n  "), "|(sensitive)|"},
		"base64 of a provisioner":            {long, wrap(encoded, 76, "\nterraform_data.u (local-exec): "), "|(sensitive)|"},
		"user:password in 76 columns":        {long, wrap(within, 76, "\n"), "|dXNlcjo(sensitive)|"},
		"hex of 60 columns":                  {long, wrap(hex.EncodeToString([]byte(long)), 60, "\n"), "|(sensitive)|"},
		"two writes of a local-exec":         {plain, "hunter2\nterraform_data.u (local-exec): -and-more", "|(sensitive)|"},
		"two writes of a remote-exec":        {plain, "hunter2\naws_instance.u[0] (remote-exec): -and-more", "|(sensitive)|"},
		"three writes of a provisioner":      {plain, "hunt\na.b (local-exec): er2-and-mor\na.b (local-exec): e", "|(sensitive)|"},
		"two writes of a module's":           {plain, "hunter2\nmodule.m[\"a \\\" key\"].null_resource.r (local-exec): -and-more", "|(sensitive)|"},
		"two writes with CRLF":               {plain, "hunter2\r\nterraform_data.u (local-exec): -and-more", "|(sensitive)|"},
		"two writes, split at a space":       {"two parts", "two\nterraform_data.u (local-exec): parts", "|(sensitive)|"},
		"two writes, space after the prefix": {"two parts", "two\nterraform_data.u (local-exec):  parts", "|(sensitive)|"},
		"short lines of a provisioner":       {"ab\ncd\nef", "ab\na.b (local-exec): cd\na.b (local-exec): ef", "|(sensitive)|"},
		"a line break in its middle":         {plain, "hunter2\n-and-more", "|(sensitive)|"},
		"a line break and indentation":       {plain, "hunter2\r\n    \t-and-more", "|(sensitive)|"},
		"a line break in its JSON":           {`a"b"c"d`, "a\\\"b\\\n\"c\\\"d", "|(sensitive)|"},

		"a line break before it stays":          {plain, "\n" + plain, "|\n(sensitive)|"},
		"a line break behind it stays":          {plain, plain + "\n", "|(sensitive)\n|"},
		"two line breaks in it are not skipped": {plain, "hunter2\n\n-and-more", "|hunter2\n\n-and-more|"},
		"a space in it is not skipped":          {plain, "hunter2 -and-more", "|hunter2 -and-more|"},
		"a return alone is not skipped":         {plain, "hunter2\r-and-more", "|hunter2\r-and-more|"},
		"another prefix is not skipped":         {plain, "hunter2\na.b: -and-more", "|hunter2\na.b: -and-more|"},
		"a prefix on its line is not skipped":   {plain, "hunter2a.b (local-exec): -and-more", "|hunter2a.b (local-exec): -and-more|"},
		"far indentation is not skipped":        {plain, "hunter2\n" + strings.Repeat(" ", 257) + "-and-more", "|hunter2\n" + strings.Repeat(" ", 257) + "-and-more|"},
	} {
		t.Run(name, func(t *testing.T) {
			s := redact.New(raw(tc.secret))
			if got := s.String("|" + tc.text + "|"); strings.ReplaceAll(got, "=", "") != tc.want {
				t.Errorf("%q is masked as %q, want %q", tc.text, got, tc.want)
			}
		})
	}
}

// A line break can match a space of one secret and split another secret. Both secrets are found. If both match, the longer
// secret is masked.
func TestLineBreakMatchesASpaceOrSplitsASecret(t *testing.T) {
	const prefix = "a.b (local-exec): "
	s := redact.New(raw([]string{"abxy cd 1", "abxycd 22", "abxy" + prefix + "cd 333", "abxy " + prefix + "cd 4444"}))
	for text, want := range map[string]string{
		"abxy\ncd 1":                    "(sensitive)",
		"abxy\ncd 22":                   "(sensitive)",
		"abxy\ncd\n22":                  "(sensitive)",
		"abxy\n" + prefix + "cd 1":      "(sensitive)",
		"abxy\n" + prefix + "cd 22":     "(sensitive)",
		"abxy\n" + prefix + "cd 333":    "(sensitive)",
		"abxy\n" + prefix + "cd\n4444":  "(sensitive)",
		"abxy\n" + prefix + "cd 5":      "abxy\n" + prefix + "cd 5",
		"abxy \n cd 22":                 "abxy \n cd 22",
		"abxy \n cd 1":                  "(sensitive)",
		"abxy\n" + prefix + "\ncd 22":   "abxy\n" + prefix + "\ncd 22",
		"abxy\n" + prefix + " c\nd 22.": "(sensitive).",
	} {
		if got := s.String(text); got != want {
			t.Errorf("%q is masked as %q, want %q", text, got, want)
		}
	}
}

// A complete line is passed on at once, even if its last 3 bytes are the first 3 bytes of a secret.
func TestEndOfALineDoesNotWaitForTheNext(t *testing.T) {
	var out bytes.Buffer
	w := redact.New(raw("hunter2-and-more")).NewWriter(&out)
	const line = "the end is hun\n"
	if _, err := io.WriteString(w, line); err != nil || out.String() != line {
		t.Errorf("the writer passed on %q, want %q: %v", out.String(), line, err)
	}
}

// inPieces writes text to a Writer in pieces of the sizes, and returns the Writer's output.
func inPieces(t interface{ Fatal(...any) }, s *redact.Set, text string, sizes []int) string {
	var out bytes.Buffer
	w := s.NewWriter(&out)
	for i := 0; text != ""; i++ {
		n := min(len(text), sizes[i%len(sizes)])
		if _, err := io.WriteString(w, text[:n]); err != nil {
			t.Fatal(err)
		}
		text = text[n:]
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

var breaks = []string{"\n", "\r\n", "\n  ", "\n\t", "\na.b (local-exec): ", "\r\nmodule.m[\"a b\"].c.d (remote-exec):  "}

// For every secret, form, set of line breaks in it, and split into writes, the secret is masked completely.
func TestNoFormLeaksWhateverItsBreaksAndWrites(t *testing.T) {
	percent := func(v, format string) (all string) {
		for i := range len(v) {
			all += fmt.Sprintf(format, v[i])
		}
		return all
	}
	forms := map[string]func(string) string{
		"plain":           func(v string) string { return v },
		"JSON":            func(v string) string { q := string(raw(v)); return q[1 : len(q)-1] },
		"base64":          func(v string) string { return base64.RawStdEncoding.EncodeToString([]byte(v)) },
		"hex":             func(v string) string { return hex.EncodeToString([]byte(v)) },
		"upper-case hex":  func(v string) string { return strings.ToUpper(hex.EncodeToString([]byte(v))) },
		"HTML":            html.EscapeString,
		"HTML with &quot": strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace,
		"single quotes":   func(v string) string { return strings.ReplaceAll(v, "'", `'\''`) },
		"double quotes":   strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace,
		"query":           url.QueryEscape,
		"%XX":             func(v string) string { return percent(v, "%%%02X") },
		"%xx":             func(v string) string { return percent(v, "%%%02x") },
	}
	names := slices.Sorted(maps.Keys(forms))
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringMatching("[a-cA-C012$\"'&<;`{}\\\\]([a-cA-C012$\"'&<;`{}\\\\ ]{4,40})[a-cA-C012$\"'&<;`{}\\\\]").Draw(t, "secret")
		form := forms[rapid.SampledFrom(names).Draw(t, "form")](secret)
		var text strings.Builder
		for i := range len(form) {
			if i >= 4 && form[i] != ' ' && form[i-1] != ' ' && rapid.IntRange(0, 7).Draw(t, "break here") == 0 {
				text.WriteString(rapid.SampledFrom(breaks).Draw(t, "break"))
			}
			if form[i] == ' ' && (i == 0 || form[i-1] != ' ') && rapid.Bool().Draw(t, "break at the space") {
				text.WriteString(rapid.SampledFrom(breaks).Draw(t, "break"))
				continue
			}
			text.WriteByte(form[i])
		}
		s := redact.New(raw(secret))
		sizes := rapid.SliceOfN(rapid.IntRange(1, 30), 1, 5).Draw(t, "sizes")
		if got := inPieces(t, s, "|"+text.String()+"|", sizes); got != "|"+redact.Mask+"|" {
			t.Fatalf("%q is masked as %q, want one mask", text.String(), got)
		}
	})
}

// For all secrets and texts, the output does not depend on the split into writes.
func TestOutputIsTheSameForEverySplit(t *testing.T) {
	part := rapid.SampledFrom(append([]string{"a", "b", "ab", "a", "b", " ", "  ", "\r", "\n\n", "|", "%61",
		" (local-exec): ", "a.b", "fla_0123456789abcdefgh", "YWJh", "&#34;", "\\", "\""}, breaks...))
	rapid.Check(t, func(t *rapid.T) {
		secrets := rapid.SliceOfN(rapid.SliceOfN(part, 1, 8), 1, 4).Draw(t, "secrets")
		var values []string
		for _, parts := range secrets {
			values = append(values, strings.Join(parts, ""))
		}
		s := redact.New(raw(values))
		text := strings.Join(rapid.SliceOfN(part, 0, 30).Draw(t, "text"), "")
		if rapid.Bool().Draw(t, "with a secret") {
			text += values[0] + strings.Join(rapid.SliceOfN(part, 0, 5).Draw(t, "rest"), "")
		}
		sizes := rapid.SliceOfN(rapid.IntRange(1, 9), 1, 5).Draw(t, "sizes")
		if whole, got := s.String(text), inPieces(t, s, text, sizes); got != whole {
			t.Fatalf("%q: in pieces the output is %q, in one write %q", text, got, whole)
		}
	})
}

// Even if each line can be the beginning of a secret or of a provisioner's line, the Writer holds back a bounded number of
// bytes.
func TestWriterHoldsBackABoundedLength(t *testing.T) {
	const secret, limit = "hunter2-and-more", 2000
	s := redact.New(raw(secret))
	for name, text := range map[string]string{
		"lines that begin the secret": strings.Repeat("hunt\n", 10000),
		"a long address":              strings.Repeat("hunt\n"+strings.Repeat("a.", 5000), 5),
		"a long key of an instance":   strings.Repeat("hunt\na[\""+strings.Repeat("a ", 5000), 5),
		"wide indentation":            strings.Repeat("hunt\n"+strings.Repeat(" ", 10000), 5),
		"wide indentation, a prefix":  strings.Repeat("hunt\na.b (local-exec): "+strings.Repeat(" ", 10000), 5),
		"nothing but empty lines":     "hunt" + strings.Repeat("\n", 10000),
		"lines with another's prefix": strings.Repeat("hunt\na.b (local-exec): x\n", 10000),
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			w := s.NewWriter(&out)
			for n := 0; n < len(text); n += 50 {
				if held := n - out.Len(); held > limit {
					t.Fatalf("the writer holds back %d bytes of %q, want at most %d", held, text[:n], limit)
				}
				io.WriteString(w, text[n:min(n+50, len(text))])
			}
		})
	}
}

func TestOnlySecretsAreMasked(t *testing.T) {
	for name, tc := range map[string]struct {
		secret     any
		text, want string
	}{
		"a line of a longer value":       {"-----BEGIN-----\nabcdef123\n}\n", "x: abcdef123", "x: (sensitive)"},
		"a short line: not masked":       {"abcdefgh\n}\n", "a } b", "a } b"},
		"strings within an object":       {map[string]any{"k": []any{"inner-one"}}, "k inner-one", "k (sensitive)"},
		"a number":                       {123456, "n=123456", "n=(sensitive)"},
		"a short value: not masked":      {"on", "on and on", "on and on"},
		"a boolean: not masked":          {true, "true", "true"},
		"the longer of two matches":      {[]string{"abcd", "abcdef"}, "abcdefg", "(sensitive)g"},
		"two overlapping secrets":        {[]string{"abcd", "bcdef"}, "abcdefg", "(sensitive)g"},
		"a Fairlead token":               {"none", "t=flr_0123456789abcdefXYZ.", "t=(sensitive)"},
		"a token that overlaps a value":  {"abcdfl", "abcdflr_0123456789abcdefXYZ", "(sensitive)"},
		"a token's prefix: not masked":   {"none", "fl_oat flx_short", "fl_oat flx_short"},
		"a partial match before a match": {"abcdabcx", "abcdabcdabcx", "abcd(sensitive)"},
		"two adjacent secrets":           {"abcd", "abcdabcd", "(sensitive)(sensitive)"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := redact.New(raw(tc.secret)).String(tc.text); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// The output does not depend on the split into writes, and does not contain the secret.
func FuzzNoSplitLeaks(f *testing.F) {
	f.Add("hunter2secret", "a hunter2secret b", uint8(3), uint8(7))
	f.Add("abab", "ababab flr_0123456789abcdefghij", uint8(1), uint8(1))
	f.Add("two terms", "two\n terms two terms", uint8(2), uint8(5))
	f.Add("line one\nline two", "line one\nline two\n", uint8(4), uint8(9))
	f.Add("hunter2secret", "a hunter\r\n  2secret hun\na.b[\"c\"] (local-exec): ter2secret", uint8(3), uint8(7))
	f.Add("ab cdabc", "ab\na.b (local-exec): cd\nab\nc", uint8(1), uint8(1))
	f.Fuzz(func(t *testing.T, secret, text string, a, b uint8) {
		if len(secret) > 100 || len(text) > 1000 {
			return
		}
		s := redact.New(raw(secret))
		whole := s.String(text)
		if got := inPieces(t, s, text, []int{int(a)%7 + 1, int(b)%13 + 1}); got != whole {
			t.Fatalf("in pieces the output is %q, in one write %q", got, whole)
		}
		plain := strings.TrimSpace(secret)
		if len(plain) >= 4 && !strings.Contains(redact.Mask, plain) && !strings.Contains(strings.ReplaceAll(text, plain, ""), plain) {
			if strings.Contains(strings.ReplaceAll(whole, redact.Mask, "\x00"), plain) {
				t.Fatalf("the secret %q is in the output %q", plain, whole)
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

// A log with lines of many kinds, and 20 secrets, like a typical job.
func BenchmarkLog(b *testing.B) {
	var secrets []json.RawMessage
	for n := range 20 {
		sum := sha256.Sum256([]byte{byte(n)})
		secrets = append(secrets, raw(base64.RawURLEncoding.EncodeToString(sum[:])))
	}
	s := redact.New(secrets...)
	var log []byte
	for n := 0; len(log) < 10<<20; n++ {
		log = fmt.Appendf(log, "module.m[%d].aws_instance.web: Creation complete after %ds [id=i-%x]\n  + tags = { Name = %q }\n", n%7, n%60, n*7919, wrap("The quick brown fox", 5, "-"))
		log = fmt.Appendf(log, "terraform_data.d%d (local-exec): %s Step %d/9: RUN apt-get install -y curl\n", n%9, "2026-01-02T03:04:05Z", n%9)
	}
	b.SetBytes(int64(len(log)))
	for b.Loop() {
		w := s.NewWriter(io.Discard)
		for rest := log; len(rest) > 0; {
			n := min(len(rest), 4096)
			if _, err := w.Write(rest[:n]); err != nil {
				b.Fatal(err)
			}
			rest = rest[n:]
		}
	}
}

// The log of BenchmarkLog with the 50 secrets of a large job: passwords with special characters, tokens, and keys of several lines. Each is
// looked for in all its forms. Every thousandth line has one.
func BenchmarkLogWithFiftySecrets(b *testing.B) {
	var secrets []json.RawMessage
	var texts []string
	for n := range 50 {
		sum := sha256.Sum256([]byte{byte(n)})
		text := base64.RawURLEncoding.EncodeToString(sum[:])
		switch n % 5 {
		case 1:
			text = fmt.Sprintf(`p&"%s'<%d$`, text[:16], n)
		case 2:
			text = "-----BEGIN KEY-----\n" + text + "\n" + text[5:] + "\n-----END KEY-----\n"
		}
		secrets, texts = append(secrets, raw(text)), append(texts, text)
	}
	s := redact.New(secrets...)
	var log []byte
	for n := 0; len(log) < 10<<20; n++ {
		log = fmt.Appendf(log, "module.m[%d].aws_instance.web: Creation complete after %ds [id=i-%x]\n  + tags = { Name = %q }\n", n%7, n%60, n*7919, wrap("The quick brown fox", 5, "-"))
		log = fmt.Appendf(log, "terraform_data.d%d (local-exec): %s Step %d/9: RUN apt-get install -y curl\n", n%9, "2026-01-02T03:04:05Z", n%9)
		if n%333 == 0 {
			log = fmt.Appendf(log, "connecting with %s\n", texts[n/333%len(texts)])
		}
	}
	b.SetBytes(int64(len(log)))
	for b.Loop() {
		w := s.NewWriter(io.Discard)
		for rest := log; len(rest) > 0; {
			n := min(len(rest), 4096)
			if _, err := w.Write(rest[:n]); err != nil {
				b.Fatal(err)
			}
			rest = rest[n:]
		}
	}
}

// A secret that is added while the job runs is masked in all later writes, in all its forms.
func TestAddedSecretIsMaskedInLaterWrites(t *testing.T) {
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
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// A Set needs at most 100 times the memory of a long secret. With more, a container with a memory limit would be killed.
func TestLongSecretNeedsBoundedMemory(t *testing.T) {
	const size, times = 100_000, 100
	secret := make([]byte, 0, size)
	for n := 0; len(secret) < size; n++ { // makes text without repetition, like random bytes
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
		t.Errorf("a secret of %d bytes needs %d bytes of memory, want at most %d", size, now-before, size*times)
	}
	if got := set.String("x " + string(secret)); strings.TrimSpace(got) != "x "+redact.Mask {
		t.Errorf("the secret is masked as %.100q", got)
	}
}
