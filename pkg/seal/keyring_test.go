package seal_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/seal"
	"github.com/fairlead/fairlead/pkg/seal/sealtest"
)

const place = "install/ins_1/input/password"

func sealed(t *testing.T, s seal.Sealer, value string) []byte {
	t.Helper()
	b, err := s.Seal(t.Context(), []byte(value), place)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func opens(t *testing.T, s seal.Sealer, b []byte, want string) {
	t.Helper()
	got, err := s.Open(t.Context(), b, place)
	if err != nil || string(got) != want {
		t.Fatalf("opened %q, %v; want %q", got, err, want)
	}
}

func TestKeyringConforms(t *testing.T) {
	keys := map[string]seal.Key{}
	sealtest.Run(t, func(t *testing.T, name string) seal.Sealer {
		id := t.Name() + "/" + name
		if _, ok := keys[id]; !ok {
			keys[id] = seal.GenerateKey()
		}
		return seal.NewKeyring(keys[id])
	})
}

func TestSealedValueOpensOnlyAtItsPlace(t *testing.T) {
	s := seal.NewKeyring(seal.GenerateKey())
	value := "correct horse battery staple"
	b := sealed(t, s, value)
	opens(t, s, b, value)
	if bytes.Contains(b, []byte("horse")) || len(b) != len(value)+seal.Overhead {
		t.Errorf("the sealed value contains the plain one, or has the wrong length: %q, %d bytes", b, len(b))
	}
	for _, other := range []string{
		"install/ins_2/input/password", place + "/", place + "\x00", place[1:], strings.ToUpper(place),
	} {
		if got, err := s.Open(t.Context(), b, other); !errors.Is(err, seal.ErrDamaged) || got != nil {
			t.Errorf("at the place %q it opens: %q, %v", other, got, err)
		}
	}
}

func TestFlippedBitsAndTruncationAreDetected(t *testing.T) {
	s := seal.NewKeyring(seal.GenerateKey())
	b := sealed(t, s, "secret")
	for i := range b {
		for bit := range 8 {
			bad := bytes.Clone(b)
			bad[i] ^= 1 << bit
			want := seal.ErrDamaged
			if i >= 1 && i < 9 { // the id of another key
				want = seal.ErrUnknownKey
			}
			got, err := s.Open(t.Context(), bad, place)
			if !errors.Is(err, want) || got != nil {
				t.Errorf("bit %d of byte %d flipped: %q, %v; want %v", bit, i, got, err, want)
			}
			if e, ok := errors.AsType[*fairlead.Error](err); !ok || e.Hint == "" || !strings.Contains(e.Message, place) {
				t.Errorf("the error has no place or no hint: %#v", err)
			}
		}
	}
	for n := range b {
		if got, err := s.Open(t.Context(), b[:n], place); !errors.Is(err, seal.ErrDamaged) {
			t.Errorf("truncated to %d bytes: %q, %v", n, got, err)
		}
	}
	if _, err := s.Open(t.Context(), append(b, 0), place); !errors.Is(err, seal.ErrDamaged) {
		t.Errorf("with one more byte: %v", err)
	}
}

func TestRotationKeepsOldValuesReadable(t *testing.T) {
	older, newer := seal.GenerateKey(), seal.GenerateKey()
	before := seal.NewKeyring(older)
	after := seal.NewKeyring(newer, older)
	old, fresh := sealed(t, before, "old"), sealed(t, after, "fresh")
	opens(t, after, old, "old")
	opens(t, after, fresh, "fresh")
	if after.KeyID() != newer.ID() {
		t.Errorf("key %s seals, want the first one, %s", after.KeyID(), newer.ID())
	}
	opens(t, seal.NewKeyring(newer), fresh, "fresh") // the old key is not needed
	for _, r := range []*seal.Keyring{before, seal.NewKeyring(seal.GenerateKey())} {
		_, err := r.Open(t.Context(), fresh, place)
		if !errors.Is(err, seal.ErrUnknownKey) || !strings.Contains(err.Error(), newer.ID()) {
			t.Errorf("without its key: %v, want ErrUnknownKey with %s", err, newer.ID())
		}
	}
}

func TestEveryValueOpensAndDamageIsDetected(t *testing.T) {
	s := seal.NewKeyring(seal.GenerateKey(), seal.GenerateKey())
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.SliceOf(rapid.Byte()).Draw(t, "value")
		at := rapid.StringN(1, 50, -1).Draw(t, "place")
		a, err := s.Seal(t.Context(), value, at)
		if err != nil {
			t.Fatal(err)
		}
		b, err := s.Seal(t.Context(), value, at)
		if err != nil || bytes.Equal(a, b) {
			t.Fatalf("sealing twice gave the same bytes (error %v)", err)
		}
		if got, err := s.Open(t.Context(), a, at); err != nil || !bytes.Equal(got, value) {
			t.Fatalf("opened %q, %v; want %q", got, err, value)
		}
		damaged := bytes.Clone(b)
		damaged[rapid.IntRange(0, len(b)-1).Draw(t, "byte")] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		if got, err := s.Open(t.Context(), damaged, at); err == nil {
			t.Fatalf("a damaged value opened as %q", got)
		}
	})
}

func TestInvalidArgumentsAreRefused(t *testing.T) {
	s := seal.NewKeyring(seal.GenerateKey())
	if _, err := s.Seal(t.Context(), []byte("x"), ""); fairlead.KindOf(err) != fairlead.KindInvalid {
		t.Errorf("seal with an empty place: %v", err)
	}
	if _, err := s.Open(t.Context(), sealed(t, s, "x"), ""); fairlead.KindOf(err) != fairlead.KindInvalid {
		t.Errorf("open with an empty place: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Seal(ctx, []byte("x"), place); !errors.Is(err, context.Canceled) {
		t.Errorf("seal with an ended context: %v", err)
	}
	for _, n := range []int{0, 16, 31, 33} {
		if _, err := seal.NewKey(make([]byte, n)); fairlead.KindOf(err) != fairlead.KindInvalid {
			t.Errorf("a key of %d bytes: %v", n, err)
		}
	}
	k := seal.GenerateKey()
	for what, keys := range map[string][]seal.Key{"no key": nil, "zero key": {{}}, "key twice": {k, k}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", what)
				}
			}()
			seal.NewKeyring(keys...)
		}()
	}
}

func TestKeyNeverPrintsItsSecret(t *testing.T) {
	secret := []byte("a secret of thirty-two bytes....")
	k, err := seal.NewKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x", "%X"} {
		fmt.Fprintf(&out, verb+"\n", k)
		fmt.Fprintf(&out, verb+"\n", struct{ K seal.Key }{k})
		fmt.Fprintf(&out, verb+"\n", &k)
	}
	slog.New(slog.NewTextHandler(&out, nil)).Info("key", "key", k)
	b, err := json.Marshal(map[string]any{"key": k})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(b)
	for _, leak := range []string{"a secret", fmt.Sprintf("%x", "a secret"), fmt.Sprintf("%X", "a secret"), "97 32 115"} {
		if strings.Contains(out.String(), leak) {
			t.Errorf("the output contains %q:\n%s", leak, out.String())
		}
	}
	if !strings.Contains(out.String(), k.ID()) {
		t.Errorf("the output does not contain the id %s:\n%s", k.ID(), out.String())
	}
}

// golden is the value "sealed in 2026", sealed for place.
const golden = "01f25833f71ed69ec6f86445e62b7f9704132c74d779514e05198911a8f0ca89f7f8e2cf0b" +
	"cbeb970bbf175a3428adcd34dfbe"

// Every later version must open a value that a released version sealed.
func TestReleasedFormatStillOpens(t *testing.T) {
	k, err := seal.NewKey([]byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	var b []byte
	if _, err := fmt.Sscanf(golden, "%x", &b); err != nil {
		t.Fatal(err)
	}
	opens(t, seal.NewKeyring(seal.GenerateKey(), k), b, "sealed in 2026")
}
