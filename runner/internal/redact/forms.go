package redact

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"
)

// addForms adds the unchanged value v, and v in each encoded form in which tools print it. If v is
// shorter than least bytes, addForms ignores it.
func (s *trie) addForms(v string, least int) {
	if len(v) < least {
		return
	}
	s.add(v)
	quoted := quote(v)
	escaped := strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`).Replace(quoted) // as Go's JSON encoder escapes it
	for _, form := range []string{quoted, escaped} {
		s.add(form)
		s.add(quote(form)) // JSON in a JSON string
	}
	s.add(strings.NewReplacer("${", "$${", "%{", "%%{").Replace(quoted)) // HCL
	query := url.QueryEscape(v)
	for _, form := range []string{query, strings.ReplaceAll(query, "+", "%20"), url.PathEscape(v), percent(v)} {
		s.add(form)
		s.add(lowerPercent(form))
	}
	digits := hex.EncodeToString([]byte(v))
	s.add(digits)
	s.add(strings.ToUpper(digits))
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		s.addBase64(enc, v)
	}
	if strings.ContainsAny(v, `&<>"'`) {
		for _, r := range html {
			s.add(r.Replace(v))
		}
	}
	s.addShell(v)
}

// html holds the variants of HTML and XML escaping. All variants escape &, < and >. They differ in the
// two quotation marks: some variants escape them, in different ways, and others do not.
var html = func() (all []*strings.Replacer) {
	for _, double := range []string{`"`, "&#34;", "&quot;"} {
		for _, single := range []string{"'", "&#39;", "&#039;", "&#x27;", "&apos;"} {
			all = append(all, strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, double, "'", single))
		}
	}
	return all
}()

// ansiC escapes a value with control characters like bash in $'…'.
var ansiC = strings.NewReplacer(`\`, `\\`, "'", `\'`,
	"\a", `\a`, "\b", `\b`, "\t", `\t`, "\n", `\n`, "\v", `\v`, "\f", `\f`, "\r", `\r`, "\x1b", `\E`)

// addShell adds the forms in which shells print v and in which scripts quote v.
func (s *trie) addShell(v string) {
	s.add(backslash(v, " !\"$&'()*,;<>?[\\]^`{|}")) // bash's printf %q
	s.add(backslash(v, "\"$\\`"))                   // within double quotes
	s.add(strings.ReplaceAll(v, "'", `'\''`))       // within single quotes
	s.add(strings.ReplaceAll(v, "'", `'"'"'`))      // within single quotes, by dash and Python
	s.add(ansiC.Replace(v))
}

// backslash returns v with a backslash before each byte that is in special.
func backslash(v, special string) string {
	if !strings.ContainsAny(v, special) {
		return v
	}
	b := make([]byte, 0, len(v)+8)
	for i := range len(v) {
		if strings.IndexByte(special, v[i]) >= 0 {
			b = append(b, '\\')
		}
		b = append(b, v[i])
	}
	return string(b)
}

const hexDigits = "0123456789ABCDEF"

// percent returns v with each byte encoded as %XX.
func percent(v string) string {
	b := make([]byte, 0, 3*len(v))
	for i := range len(v) {
		b = append(b, '%', hexDigits[v[i]>>4], hexDigits[v[i]&15])
	}
	return string(b)
}

// lowerPercent returns a percent-encoded text with its hex digits in lower case.
func lowerPercent(form string) string {
	b := []byte(form)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i:], strings.ToLower(form[i:i+3]))
			i += 2
		}
	}
	return string(b)
}

// addBase64 adds the base64 encodings of v. If v is a part of a longer encoded text, such as
// "user:password", its encoding depends on v's offset modulo 3, so addBase64 adds all three. It omits
// the characters at both ends that also encode neighbouring bytes.
func (s *trie) addBase64(enc *base64.Encoding, v string) {
	s.add(enc.EncodeToString([]byte(v)))
	for pad := range 3 {
		b := enc.EncodeToString(append(make([]byte, pad), v...))
		from := (pad*8 + 5) / 6
		to := (pad + len(v)) * 8 / 6
		if to-from >= 8 {
			s.add(b[from:to])
		}
	}
}

// quote returns v as a JSON string without the quotation marks.
func quote(v string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return v
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(b.String(), "\n"), `"`), `"`)
}
