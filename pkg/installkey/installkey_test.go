package installkey_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/installkey"
)

const (
	place   = "input/password"
	install = fairlead.InstallID("ins_1")
	seed    = "SeedOfTheTestsSeedOfTheTestsSeedOfTheTests0123"
	newer   = "NewerSeedOfTheTestsNewerSeedOfTheTestsNewer012"
)

func ringOf(t testing.TB, seeds string, of fairlead.InstallID) installkey.Ring {
	t.Helper()
	r, err := installkey.NewRing(seeds, of)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func must(t testing.TB) func([]byte, error) []byte {
	return func(b []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

// A person seals a password with the public key, and the customer's side opens it. A step seals an output, and the next
// step knows that a step made it.
func TestStory(t *testing.T) {
	r := ringOf(t, seed, install)
	public, err := installkey.ParsePublic(r.Current().Public().String())
	if err != nil {
		t.Fatal(err)
	}
	fromPerson := must(t)(public.Seal(place, []byte("secret")))
	if got := must(t)(r.Open(place, fromPerson)); string(got) != "secret" {
		t.Errorf("opened %q", got)
	}
	if _, err := r.OpenOwn(place, fromPerson); !errors.Is(err, installkey.ErrForeign) {
		t.Errorf("a value that a person sealed opens as the customer's own: %v", err)
	}
	fromStep := must(t)(r.Seal("output/url", []byte("db://")))
	if got := must(t)(r.OpenOwn("output/url", fromStep)); string(got) != "db://" {
		t.Errorf("opened %q", got)
	}
	if bytes.Contains(fromStep, []byte("db://")) || bytes.Contains(fromPerson, []byte("secret")) {
		t.Error("a sealed value contains the value")
	}
	if public.ID() != installkey.KeyOf(fromPerson) || public.ID() != installkey.KeyOf(fromStep) {
		t.Error("a sealed value does not name its key")
	}
}

// A later release must derive the same key from the same seed, or each value of each customer is lost.
func TestKeyOfASeedNeverChanges(t *testing.T) {
	r := ringOf(t, seed, install)
	public := r.Current().Public()
	if got, want := public.String(), "flk1_zVttyU9jPkYA8jSLzUwrekHqtE_Jp8EikC6oYWv0HQ0"; got != want {
		t.Errorf("the key is %s, want %s", got, want)
	}
	if got, want := public.Fingerprint(), "SHA256:b74+O5AWl+MbzFAQaFXYjSwlhfUM1jR1XpQ+VpVj5CM"; got != want {
		t.Errorf("the fingerprint is %s, want %s", got, want)
	}
	for origin, sealed := range map[string]string{"person": "RkxLMQAcZOoJzSzlEydbbZ_thqDdsIfnAOL7uaRXIJlJlXFQ56Or9NaSqXtrIA7D18IzXguLv2nYYo9yay4Aoq9wj07U5dzQ7KkSzc-cS3yg52Ow87Zc", "step": "RkxLMQEcZOoJzSzlE4qJqjf8POpOKsb9PWizfYiRmzaHmsJd6hLN0gRxJjhHNdHQv1GvVXgU-ALuEXOyNqxLGqzs21ltBQIV9F7_mhcydHUdgEsp6vzJmmguDGmaPIMsOxqpX7eGO0YtECOhN7-vaAutU661CAw"} {
		if got, err := r.Open(place, decode(t, sealed)); err != nil || string(got) != "value of the first release" {
			t.Errorf("the value that a %s sealed opens as %q, %v", origin, got, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	r := ringOf(t, seed, install)
	person, step := must(t)(r.Current().Public().Seal(place, []byte("secret"))), must(t)(r.Seal(place, []byte("secret")))
	asPerson := bytes.Clone(step[:len(step)-32])
	asPerson[4] = 0
	asStep := append(bytes.Clone(person), make([]byte, 32)...)
	asStep[4] = 1
	for name, c := range map[string]struct {
		ring   installkey.Ring
		place  string
		sealed []byte
		want   error
	}{
		"another place":                               {r, "input/other", person, installkey.ErrDamaged},
		"another place, sealed by a step":             {r, "input/other", step, installkey.ErrDamaged},
		"another install with the same seed":          {ringOf(t, seed, "ins_2"), place, person, installkey.ErrUnknownKey},
		"another seed":                                {ringOf(t, newer, install), place, step, installkey.ErrUnknownKey},
		"no key":                                      {installkey.Ring{}, place, step, installkey.ErrUnknownKey},
		"a step's value that claims to be a person's": {r, place, asPerson, installkey.ErrDamaged},
		"a person's value that claims to be a step's": {r, place, asStep, installkey.ErrDamaged},
		"clear text":                                  {r, place, []byte("secret"), installkey.ErrDamaged},
		"nothing":                                     {r, place, nil, installkey.ErrDamaged},
	} {
		if got, err := c.ring.Open(c.place, c.sealed); !errors.Is(err, c.want) || got != nil {
			t.Errorf("%s: opened %q, %v; want %v", name, got, err, c.want)
		}
	}
	for _, sealed := range [][]byte{person, step} {
		for i := range sealed {
			changed := bytes.Clone(sealed)
			changed[i] ^= 1
			if _, err := r.Open(place, changed); err == nil {
				t.Errorf("a value opens although byte %d of %d was changed", i, len(sealed))
			}
			if _, err := r.Open(place, sealed[:i]); err == nil {
				t.Errorf("a value opens although it was cut to %d of %d bytes", i, len(sealed))
			}
		}
	}
}

// The customer puts a new seed above the old one: new values use the new key, and the old values still open.
func TestRotatedSeedOpensEarlierValues(t *testing.T) {
	before := must(t)(ringOf(t, seed, install).Seal(place, []byte("before")))
	both := ringOf(t, newer+"\n"+seed+"\n", install)
	if got := must(t)(both.OpenOwn(place, before)); string(got) != "before" {
		t.Errorf("opened %q", got)
	}
	after := must(t)(both.Seal(place, []byte("after")))
	if got := must(t)(ringOf(t, newer, install).OpenOwn(place, after)); string(got) != "after" {
		t.Errorf("opened %q", got)
	}
	if _, err := ringOf(t, newer, install).Open(place, before); !errors.Is(err, installkey.ErrUnknownKey) {
		t.Errorf("the old value, without the old seed: %v", err)
	}
}

func TestAnyValueOpensAtItsPlace(t *testing.T) {
	r := ringOf(t, seed, install)
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.StringN(1, 40, -1).Draw(t, "place")
		value := rapid.SliceOf(rapid.Byte()).Draw(t, "value")
		for _, seal := range []func(string, []byte) ([]byte, error){r.Seal, r.Current().Public().Seal} {
			a, err := seal(at, value)
			if err != nil {
				t.Fatal(err)
			}
			if len(a) > len(value)+installkey.Overhead {
				t.Errorf("sealing added %d bytes", len(a)-len(value))
			}
			if b, _ := seal(at, value); bytes.Equal(a, b) {
				t.Error("the same value, sealed twice, has equal bytes: a reader of the table sees that two secrets are equal")
			}
			if got, err := r.Open(at, a); err != nil || !bytes.Equal(got, value) {
				t.Errorf("opened %x, %v; want %x", got, err, value)
			}
		}
	})
}

func TestSeeds(t *testing.T) {
	for name, c := range map[string]struct {
		seeds string
		want  string // part of the error; "": none
	}{
		"one":                       {seed, ""},
		"with an end of line":       {seed + "\r\n", ""},
		"ten":                       {strings.Repeat(seed+"\n", 10), ""},
		"eleven":                    {strings.Repeat(seed+"\n", 11), "more than 10 seeds"},
		"none":                      {"\n", "there is no seed"},
		"short":                     {seed + "\nhunter2", "at least 43 letters and digits"},
		"a character of a sentence": {strings.Replace(seed, "T", " ", 1), "only letters and digits"},
	} {
		_, err := installkey.NewRing(c.seeds, install)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		case err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), seed[:10])):
			t.Errorf("%s: the error shows the seed: %v", name, err)
		}
	}
	made, err := installkey.NewSeed(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ringOf(t, made, install)
	if again, _ := installkey.NewSeed(rand.Reader); again == made {
		t.Error("two seeds are equal")
	}
	// Bytes of 248 and more are dropped.
	if got, err := installkey.NewSeed(bytes.NewReader(append(bytes.Repeat([]byte{250}, 5), bytes.Repeat([]byte{62}, 64)...))); err != nil || got != strings.Repeat("A", 64) {
		t.Errorf("made %q, %v", got, err)
	}
	if _, err := installkey.NewSeed(bytes.NewReader(nil)); err == nil {
		t.Error("a seed was made without random bytes")
	}
}

func TestPublicKeysThatAreNone(t *testing.T) {
	good := ringOf(t, seed, install).Current().Public().String()
	for _, text := range []string{"", "flk1_", good[:len(good)-1], good + "A", strings.TrimPrefix(good, "flk1_"), "flk2" + good[4:], good + "\n"} {
		if _, err := installkey.ParsePublic(text); fairlead.KindOf(err) != fairlead.KindInvalid {
			t.Errorf("%q is a key: %v", text, err)
		}
	}
	var none installkey.Public
	if _, err := none.Seal(place, nil); err == nil || none.String()+none.Fingerprint()+none.ID() != "" || !none.IsZero() {
		t.Error("the zero value is a key")
	}
	if _, err := ringOf(t, seed, install).Seal("", nil); err == nil {
		t.Error("a value was sealed without a place")
	}
}

func FuzzOpen(f *testing.F) {
	r := ringOf(f, seed, install)
	f.Add(must(f)(r.Seal(place, []byte("v"))))
	f.Add(must(f)(r.Current().Public().Seal(place, nil)))
	f.Fuzz(func(t *testing.T, sealed []byte) {
		if value, err := r.OpenOwn(place, sealed); err == nil && string(value) != "v" {
			t.Errorf("forged %x", value)
		}
	})
}

// BenchmarkSeal and BenchmarkOpen are the cost of one value: they show what encryption adds to a job.
func BenchmarkSeal(b *testing.B) {
	r := ringOf(b, seed, install)
	for b.Loop() {
		must(b)(r.Seal(place, []byte("secret")))
	}
}

func BenchmarkOpen(b *testing.B) {
	r := ringOf(b, seed, install)
	sealed := must(b)(r.Seal(place, []byte("secret")))
	for b.Loop() {
		must(b)(r.OpenOwn(place, sealed))
	}
}

func BenchmarkSealPlanOf10MB(b *testing.B) {
	r, plan := ringOf(b, seed, install), make([]byte, 10<<20)
	b.SetBytes(int64(len(plan)))
	for b.Loop() {
		must(b)(r.Seal("plan", plan))
	}
}

func decode(t *testing.T, text string) []byte {
	t.Helper()
	return must(t)(base64.RawURLEncoding.DecodeString(text))
}

// Two runners with the same seed have the same identifier, and an identifier reveals nothing of its seed.
func TestSeedIDs(t *testing.T) {
	other := strings.Repeat("Other", 10)
	ids, err := installkey.SeedIDs(other + "\r\n\n " + seed + "\n")
	if err != nil || len(ids) != 2 || ids[0] == ids[1] {
		t.Fatalf("the identifiers are %q, %v", ids, err)
	}
	if again, err := installkey.SeedIDs(seed); err != nil || len(again) != 1 || again[0] != ids[1] {
		t.Errorf("the identifier of one seed is %q, %v, want %q", again, err, ids[1:])
	}
	public := ringOf(t, seed, install).Current().Public()
	for _, id := range ids {
		if len(id) != 16 || strings.Contains(seed+other, id) || id == public.ID() {
			t.Errorf("the identifier is %q", id)
		}
	}
	if ids, err := installkey.SeedIDs(seed + "\nhunter2"); err == nil {
		t.Errorf("a short seed has the identifiers %q", ids)
	}
}
