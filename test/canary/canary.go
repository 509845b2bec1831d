// Package canary looks for secrets in what a control plane has. A test gives each sensitive place a secret of its own, a
// canary, and then searches bytes of any kind: in the clear, in encodings, in compressed parts, and in all that a key opens.
package canary

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/pkg/seal"
)

// Text returns the canary of a place: letters and digits, which no escape changes, so that the search finds the canary as a part of
// any larger value. Different places have different canaries.
func Text(place string) string {
	sum := sha256.Sum256([]byte("canary of " + place))
	return "cnry" + hex.EncodeToString(sum[:12])
}

// Opener returns everything that a key opens in the content, wherever it is in the content.
type Opener func(content []byte) (opened [][]byte)

// Search looks for canaries. Not safe for concurrent use.
type Search struct {
	canaries map[string][]string // by name: the forms in which bytes can hold the canary
	openers  []Opener
	seen     map[part]bool // what was searched already in the current content
}

// part is a part of a content that the search has reached, with or without a key.
type part struct {
	sum    [sha256.Size]byte
	opened bool
}

// New returns a search for the texts, by name. The openers stand for the keys that the control plane has.
func New(texts map[string]string, openers ...Opener) *Search {
	s := &Search{canaries: map[string][]string{}, openers: openers}
	for name, text := range texts {
		s.canaries[name] = forms(text)
	}
	return s
}

// forms returns the texts that bytes hold if they hold the canary: itself, in hex, and in base64 at each offset.
func forms(text string) []string {
	out := []string{text, hex.EncodeToString([]byte(text)), fmt.Sprintf("%X", text)}
	for offset := range 3 {
		encoded := base64.StdEncoding.EncodeToString(append(make([]byte, offset), text...))
		// The first and the last digits depend also on the neighbours of the canary.
		from, to := (offset*8+5)/6, (offset+len(text))*8/6
		out = append(out, encoded[from:to], base64.URLEncoding.EncodeToString(append(make([]byte, offset), text...))[from:to])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// A Find is where a canary is in a content.
type Find struct {
	Clear  bool // without a key of the control plane, perhaps encoded or compressed
	Opened bool // after a key of the control plane has opened a part of the content
}

// In returns the canaries of a content, by name.
func (s *Search) In(content []byte) map[string]Find {
	found := map[string]Find{}
	s.seen = map[part]bool{}
	s.look(content, found, maxDepth, false)
	return found
}

// maxDepth limits how often a part is opened, decoded or decompressed.
const maxDepth = 8

// look searches a content. opened is true if a key opened it.
func (s *Search) look(content []byte, found map[string]Find, depth int, opened bool) {
	this := part{sha256.Sum256(content), opened}
	if s.seen[this] || depth == 0 {
		return
	}
	s.seen[this] = true
	for name, forms := range s.canaries {
		if slices.ContainsFunc(forms, func(form string) bool { return bytes.Contains(content, []byte(form)) }) {
			f := found[name]
			if opened {
				f.Opened = true
			} else {
				f.Clear = true
			}
			found[name] = f
		}
	}
	for _, inner := range decoded(content) {
		s.look(inner, found, depth-1, opened)
	}
	for _, key := range s.openers {
		for _, inner := range key(content) {
			s.look(inner, found, depth-1, true)
		}
	}
}

// maxPart limits a decompressed part, in bytes.
const maxPart = 64 << 20

// The alphabets of encoded bytes. A regular expression would take most of the time of a search.
const (
	hexDigits    = "0123456789abcdefABCDEF"
	base64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
)

// The escapes of single letters.
var (
	jsonEscape = pattern.New(`\\u00[0-7][0-9A-Fa-f]`)
	urlEscape  = pattern.New(`%[0-7][0-9A-Fa-f]`)
)

// runs yields the parts of a content that have only bytes of the alphabet, and at least so many.
func runs(content []byte, alphabet string, least int) func(yield func([]byte) bool) {
	var in [256]bool
	for _, c := range []byte(alphabet) {
		in[c] = true
	}
	return func(yield func([]byte) bool) {
		from := 0
		for at := 0; at <= len(content); at++ {
			if at < len(content) && in[content[at]] {
				continue
			}
			if at-from >= least && !yield(content[from:at]) {
				return
			}
			from = at + 1
		}
	}
}

// decoded returns what parts of a content are when they are decoded or decompressed, at each offset.
func decoded(content []byte) (parts [][]byte) {
	add := func(r io.Reader) {
		// A part that is cut counts as far as it goes.
		if part, _ := io.ReadAll(io.LimitReader(r, maxPart)); len(part) > 0 {
			parts = append(parts, part)
		}
	}
	for at := range offsets(content, "\x1f\x8b\x08") {
		if r, err := gzip.NewReader(bytes.NewReader(content[at:])); err == nil {
			add(r)
		}
	}
	for at := range offsets(content, "\x28\xb5\x2f\xfd") {
		if r, err := zstd.NewReader(bytes.NewReader(content[at:]), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxPart)); err == nil {
			add(r)
			r.Close()
		}
	}
	for at := range offsets(content, "PK\x03\x04") { // a file in a zip archive, also in one that is cut
		if rest := content[at:]; len(rest) > 30 && rest[8] == 8 {
			if from := 30 + int(rest[26]) + int(rest[27])<<8 + int(rest[28]) + int(rest[29])<<8; from < len(rest) {
				add(flate.NewReader(bytes.NewReader(rest[from:])))
			}
		}
	}
	for run := range runs(content, base64Digits, 24) {
		run = bytes.ReplaceAll(bytes.ReplaceAll(run, []byte("-"), []byte("+")), []byte("_"), []byte("/"))
		for offset := range 4 {
			part, _ := base64.RawStdEncoding.DecodeString(string(run[offset:])) // the bytes before an error count
			parts = append(parts, part)
		}
	}
	for run := range runs(content, hexDigits, 32) {
		for offset := range 2 {
			part, _ := hex.DecodeString(string(run[offset:])) // the bytes before an error count
			parts = append(parts, part)
		}
	}
	for from, escape := range map[int]*pattern.Pattern{4: jsonEscape, 1: urlEscape} {
		if !bytes.Contains(content, []byte(escape.String()[:1])) {
			continue
		}
		plain := escape.Regexp().ReplaceAllFunc(content, func(e []byte) []byte {
			b, err := strconv.ParseUint(string(e[from:]), 16, 8)
			if err != nil {
				return e
			}
			return []byte{byte(b)}
		})
		if !bytes.Equal(plain, content) {
			parts = append(parts, plain)
		}
	}
	return parts
}

// offsets yields each offset of the magic number.
func offsets(content []byte, magic string) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for from := 0; ; {
			at := bytes.Index(content[from:], []byte(magic))
			if at < 0 || !yield(from+at) {
				return
			}
			from += at + 1
		}
	}
}

// Seal returns the opener of a key of package seal, by its secret. It finds values by their header and decrypts them without a look at
// the place to which they are bound, and without their tag: also a copy at another place, a part of a value, and a value in a free page
// of a file are opened. At most limit bytes after a header are opened; 0: all.
func Seal(t testing.TB, secret []byte, limit int) Opener {
	t.Helper()
	key, err := seal.NewKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	id, err := hex.DecodeString(key.ID())
	if err != nil {
		t.Fatal(err)
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		t.Fatal(err)
	}
	header := "\x01" + string(id)
	return func(content []byte) (opened [][]byte) {
		for at := range offsets(content, header) {
			if clear := decrypted(block, content[at+len(header):], limit); clear != nil {
				opened = append(opened, clear)
			}
		}
		return opened
	}
}

// KMS returns the opener of values that package kms sealed with data keys of a key service. Each wrapped data key begins with prefix, as
// those of moto do with the identifier of their KMS key. unwrap returns the data key of a wrapped one, or false if the service refuses
// it. The limit is as in Seal.
func KMS(t testing.TB, prefix string, unwrap func(wrapped []byte) (secret []byte, ok bool), limit int) Opener {
	t.Helper()
	keys := map[string]cipher.Block{} // by wrapped key; nil: refused
	return func(content []byte) (opened [][]byte) {
		for at := range offsets(content, prefix) {
			if at < 3 || content[at-3] != 2 {
				continue
			}
			rest := content[at:]
			n := int(binary.BigEndian.Uint16(content[at-2:]))
			if n < len(prefix) || n > len(rest) {
				continue
			}
			wrapped := string(rest[:n])
			if _, known := keys[wrapped]; !known {
				keys[wrapped] = nil
				if secret, ok := unwrap(rest[:n]); ok {
					block, err := aes.NewCipher(secret)
					if err != nil {
						t.Fatal(err)
					}
					keys[wrapped] = block
				}
			}
			if block := keys[wrapped]; block != nil {
				if clear := decrypted(block, rest[n:], limit); clear != nil {
					opened = append(opened, clear)
				}
			}
		}
		return opened
	}
}

// decrypted returns what AES-256-GCM encrypted, without a look at its tag. The content begins with the nonce. At most limit bytes after
// it are decrypted; 0: all.
func decrypted(block cipher.Block, content []byte, limit int) []byte {
	const nonce = 12
	if len(content) <= nonce {
		return nil
	}
	// GCM encrypts with counter 2 and later ones; counter 1 is that of the tag.
	counter := append(bytes.Clone(content[:nonce]), 0, 0, 0, 2)
	rest := content[nonce:]
	if limit > 0 && len(rest) > limit {
		rest = rest[:limit]
	}
	clear := make([]byte, len(rest))
	cipher.NewCTR(block, counter).XORKeyStream(clear, rest)
	return clear
}

// Names returns the names of finds, sorted: "name" for a canary in the clear, and "name (opened)" for one that only a key shows.
func Names(found map[string]Find) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if !found[name].Clear {
			name += " (opened)"
		}
		names = append(names, name)
	}
	return names
}
