package redact

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"
)

// addForms adds v as it is and in each form in which tools print it.
func (s *trie) addForms(v string, least int) {
	if len(v) < least {
		return
	}
	s.add(v)
	quoted := quote(v)
	escaped := strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`).Replace(quoted) // as Go's encoder writes it
	for _, form := range []string{quoted, escaped} {
		s.add(form)
		s.add(quote(form)) // JSON within JSON
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

// html are the ways to escape HTML and XML. All escape &, < and >. Each quotation
// mark is escaped in one of several ways, or not at all.
var html = func() (all []*strings.Replacer) {
	for _, double := range []string{`"`, "&#34;", "&quot;"} {
		for _, single := range []string{"'", "&#39;", "&#039;", "&#x27;", "&apos;"} {
			all = append(all, strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, double, "'", single))
		}
	}
	return all
}()

// ansiC is how bash prints a value that has control characters: $'…'.
var ansiC = strings.NewReplacer(`\`, `\\`, "'", `\'`,
	"\a", `\a`, "\b", `\b`, "\t", `\t`, "\n", `\n`, "\v", `\v`, "\f", `\f`, "\r", `\r`, "\x1b", `\E`)

// addShell adds v as shells print it, and as it stands in a script.
func (s *trie) addShell(v string) {
	s.add(backslash(v, " !\"$&'()*,;<>?[\\]^`{|}")) // printf %q of bash
	s.add(backslash(v, "\"$\\`"))                   // within double quotes
	s.add(strings.ReplaceAll(v, "'", `'\''`))       // within single quotes
	s.add(strings.ReplaceAll(v, "'", `'"'"'`))      // the same, by dash and Python
	s.add(ansiC.Replace(v))
}

// backslash returns v with a backslash before each of the special bytes.
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

// percent returns v with each byte as %XX.
func percent(v string) string {
	b := make([]byte, 0, 3*len(v))
	for i := range len(v) {
		b = append(b, '%', hexDigits[v[i]>>4], hexDigits[v[i]&15])
	}
	return string(b)
}

// lowerPercent returns a text that is percent-encoded with its digits in lower case.
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

// addBase64 adds the encoding of v at each of the three places where it may
// begin within a longer text that is encoded as a whole, such as
// "user:password". The characters that neighbours share are left off.
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

// quote returns v as JSON without its quotation marks.
func quote(v string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return v
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(b.String(), "\n"), `"`), `"`)
}
