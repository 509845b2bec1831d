package oidc

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// maxDepth limits the nesting of the JSON of a token. Kubernetes uses three levels.
const maxDepth = 8

// token is a decoded token that is not verified.
type token struct {
	raw     string
	alg     string
	kid     string
	payload []byte // the signed bytes
	claims  map[string]any
}

// parse decodes a token. It refuses everything that two parsers may read differently:
// other encodings of the same bytes, duplicate names, text that is not UTF-8. It also
// refuses every header that does more than name the algorithm, the type and the key.
func parse(raw string) (token, error) {
	t := token{raw: raw}
	if len(raw) > MaxToken {
		return t, refused("malformed", "it has more than %d bytes", MaxToken)
	}
	parts := strings.Split(raw, ".")
	if len(parts) != 3 {
		return t, refused("malformed", "it does not have three parts")
	}
	var decoded [3][]byte
	for i, p := range parts {
		b, err := base64.RawURLEncoding.Strict().DecodeString(p)
		if err != nil || strings.ContainsAny(p, "\r\n") {
			return t, refused("malformed", "a part of it is not in base64url")
		}
		decoded[i] = b
	}
	if len(decoded[2]) == 0 {
		return t, refused("malformed", "it is not signed")
	}
	header, err := object(decoded[0])
	if err != nil {
		return t, refused("malformed", "its header %v", err)
	}
	for name, v := range header {
		s, ok := v.(string)
		if !ok || !slices.Contains([]string{"alg", "kid", "typ", "x5t", "x5t#S256"}, name) {
			return t, refused("header", "its header has the parameter %s, which is not accepted, or is not text", quote(name))
		}
		if name == "typ" && !strings.EqualFold(s, "JWT") {
			return t, refused("header", "its type is %s, want JWT", quote(s))
		}
	}
	t.alg, _ = header["alg"].(string)
	t.kid, _ = header["kid"].(string)
	if !slices.ContainsFunc(algorithms(), func(a algorithm) bool { return string(a) == t.alg }) {
		return t, refused("algorithm", "its algorithm is %s, which is not one of %v", quote(t.alg), algorithms())
	}
	if t.kid == "" || len(t.kid) > 256 {
		return t, refused("header", "its key id is missing or too long")
	}
	t.payload = decoded[1]
	if t.claims, err = object(t.payload); err != nil {
		return t, refused("malformed", "its payload %v", err)
	}
	return t, nil
}

// timely returns the time when the token expires, or an error if the token is not valid
// at now.
func (t token) timely(now time.Time) (time.Time, error) {
	times := map[string]time.Time{}
	for _, name := range []string{"exp", "iat", "nbf"} {
		v, there := t.claims[name]
		if !there && name == "nbf" { // Google's tokens have no nbf; iat is enough
			continue
		}
		n, ok := v.(json.Number)
		f, err := n.Float64()
		if !ok || err != nil || f < 0 || f > 1<<38 { // the year 10680
			return time.Time{}, refused("time", "its %s is missing or not a time", name)
		}
		times[name] = time.Unix(int64(f), 0)
	}
	exp, iat, nbf := times["exp"], times["iat"], times["nbf"]
	switch {
	case !now.Before(exp.Add(MaxSkew)):
		return exp, refused("expired", "it expired at %s", exp.UTC().Format(time.RFC3339))
	case now.Add(MaxSkew).Before(iat):
		return exp, refused("early", "it was issued at %s, which is in the future: check the clocks", iat.UTC().Format(time.RFC3339))
	case now.Add(MaxSkew).Before(nbf):
		return exp, refused("early", "it is not valid before %s", nbf.UTC().Format(time.RFC3339))
	case exp.Before(iat):
		return exp, refused("time", "it expires before it was issued")
	case exp.Sub(iat) > MaxLifetime:
		return exp, refused("lifetime", "it is valid for %s, longer than the limit of %s", exp.Sub(iat), MaxLifetime)
	}
	return exp, nil
}

// time returns a time of a token that timely has accepted.
func (t token) time(name string) time.Time {
	n, _ := t.claims[name].(json.Number)
	f, _ := n.Float64() // timely has parsed it
	return time.Unix(int64(f), 0)
}

// object reads a JSON object. It refuses duplicate names, at every depth.
func object(data []byte) (map[string]any, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("is not in UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := value(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("has more content after the JSON object")
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("is not a JSON object")
	}
	return m, nil
}

func value(d *json.Decoder, depth int) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, errors.New("is not JSON")
	}
	if s, ok := t.(string); ok && strings.ContainsRune(s, utf8.RuneError) {
		return nil, errors.New("has text that is not Unicode") // the decoder replaces a lone surrogate by utf8.RuneError
	}
	delim, ok := t.(json.Delim)
	if !ok {
		return t, nil
	}
	if depth++; depth > maxDepth {
		return nil, fmt.Errorf("is nested deeper than %d", maxDepth)
	}
	if delim == '[' {
		list := []any{}
		for d.More() {
			v, err := value(d, depth)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err
	}
	m := map[string]any{}
	for d.More() {
		name, err := value(d, depth)
		s, ok := name.(string)
		if err != nil || !ok {
			return nil, errors.New("is not JSON")
		}
		if _, twice := m[s]; twice {
			return nil, fmt.Errorf("has %s twice", quote(s))
		}
		if m[s], err = value(d, depth); err != nil {
			return nil, err
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, errors.New("is not JSON")
	}
	return m, nil
}
