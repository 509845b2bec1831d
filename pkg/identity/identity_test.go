package identity_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func minter() *identity.Minter { return identity.NewMinter(bytes.Repeat([]byte{1}, identity.MinKey)) }

func TestATokenReadsAsItsClaims(t *testing.T) {
	m := minter()
	for _, c := range []identity.Claims{
		{Purpose: identity.Session, Subject: "run_1/ses_1", Expires: noon.Add(time.Minute)},
		{Purpose: identity.Launch, Subject: "job_1", Epoch: 3},
		{Purpose: identity.Lease, Subject: "job_1", Epoch: 1 << 40},
		{Purpose: identity.Challenge, Subject: "n_1", Expires: noon.Add(time.Second)},
	} {
		token := m.Mint(c)
		if !strings.HasPrefix(token, string(c.Purpose)+"_") {
			t.Errorf("token %s does not begin with its purpose", token)
		}
		if token != m.Mint(c) {
			t.Error("the same claims give another token, so a lost answer cannot be repeated")
		}
		got, err := m.Read(token, noon, identity.Session, identity.Launch, identity.Lease, identity.Challenge)
		if err != nil || got.Purpose != c.Purpose || got.Subject != c.Subject || got.Epoch != c.Epoch || !got.Expires.Equal(c.Expires) {
			t.Errorf("token %s reads as %+v, %v; want %+v", token, got, err, c)
		}
	}
}

func TestATokenIsRefused(t *testing.T) {
	m := minter()
	lease := m.Mint(identity.Claims{Purpose: identity.Lease, Subject: "job_1", Epoch: 1})
	session := m.Mint(identity.Claims{Purpose: identity.Session, Subject: "run_1/ses_1", Expires: noon})
	body, mac, _ := strings.Cut(lease, ".0.")
	for name, test := range map[string]struct {
		token string
		now   time.Time
	}{
		"it expires at this second":       {session, noon},
		"it expired a day ago":            {session, noon.Add(24 * time.Hour)},
		"it has another purpose":          {lease, noon},
		"its epoch was raised":            {strings.Replace(lease, ".1.", ".2.", 1), noon},
		"its expiry was changed":          {body + ".9999999999." + mac, noon},
		"its subject was changed":         {strings.Replace(lease, "job_1", "job_2", 1), noon},
		"its purpose was changed":         {strings.Replace(lease, "flj_", "fls_", 1), noon},
		"it was cut":                      {lease[:len(lease)-1], noon},
		"it has no signature":             {lease[:strings.LastIndexByte(lease, '.')+1], noon},
		"it is empty":                     {"", noon},
		"it is only dots":                 {"....", noon},
		"it was minted with another key":  {identity.NewMinter(bytes.Repeat([]byte{2}, identity.MinKey)).Mint(identity.Claims{Purpose: identity.Session, Subject: "x"}), noon},
		"its signature is a keyed digest": {"fls_x.0.0." + m.Digest("fls_x.0.0"), noon},
	} {
		c, err := m.Read(test.token, test.now, identity.Session)
		if fairlead.KindOf(err) != fairlead.KindUnauthenticated || c != (identity.Claims{}) {
			t.Errorf("%s: it reads as %+v, %v", name, c, err)
		}
		if err != nil && test.token != "" && strings.Contains(err.Error(), test.token) {
			t.Errorf("%s: the error contains the token", name)
		}
	}
	if _, err := m.Read(session, noon.Add(-time.Second), identity.Session); err != nil {
		t.Errorf("a token is refused one second before it expires: %v", err)
	}
	if _, err := m.Read(lease, noon.Add(1000*time.Hour), identity.Launch, identity.Lease); err != nil {
		t.Errorf("a token without an expiry is refused: %v", err)
	}
}

// After a restore the table grants an epoch of a job a second time. The lease of the first
// attempt must not fit. It was issued by this control plane, so it does not count as a guess.
func TestTokenOfAnotherGenerationIsRefused(t *testing.T) {
	claims := identity.Claims{Purpose: identity.Lease, Subject: "job_1", Epoch: 1}
	never, first, second := minter(), minter().InGeneration(1), minter().InGeneration(12)
	for name, test := range map[string]struct{ of, at *identity.Minter }{
		"a lease from before the first restore":   {never, first},
		"a lease from between two restores":       {first, second},
		"a lease of a restore that was abandoned": {first, never},
	} {
		_, err := test.at.Read(test.of.Mint(claims), noon, identity.Lease)
		if fairlead.KindOf(err) != fairlead.KindUnauthenticated || !identity.WasGood(err) {
			t.Errorf("%s is not refused as an issued token: %v", name, err)
		}
		if got, err := test.of.Read(test.of.Mint(claims), noon, identity.Lease); err != nil || got != claims {
			t.Errorf("%s reads as %+v, %v in its own generation", name, got, err)
		}
	}
}

func TestAChangedTokenIsRefused(t *testing.T) {
	m := minter()
	rapid.Check(t, func(t *rapid.T) {
		c := identity.Claims{Purpose: identity.Lease, Subject: rapid.StringMatching(`[a-z0-9_/]{1,40}`).Draw(t, "subject"), Epoch: rapid.Int64Min(0).Draw(t, "epoch")}
		token := []byte(m.Mint(c))
		i := rapid.IntRange(0, len(token)-1).Draw(t, "at")
		b := rapid.Byte().Draw(t, "byte")
		same := token[i] == b
		token[i] = b
		if _, err := m.Read(string(token), noon, identity.Lease); (err == nil) != same {
			t.Fatalf("token %q with byte %d changed: %v", token, i, err)
		}
	})
}

func TestRandomTokensAndTheirHashes(t *testing.T) {
	a, b := identity.NewToken(identity.PrefixAPI), identity.NewToken(identity.PrefixAPI)
	if a == b || !strings.HasPrefix(a, "fla_") || len(a) != len("fla_")+43 {
		t.Errorf("two tokens are %d and %d bytes, equal: %t", len(a), len(b), a == b)
	}
	if h := identity.Hash(a); len(h) != 64 || strings.Contains(h, a[4:]) || h != identity.Hash(a) || h == identity.Hash(b) {
		t.Errorf("the hash is %s", h)
	}
	other := identity.NewMinter(bytes.Repeat([]byte{2}, identity.MinKey))
	if d := minter().Digest("x"); d != minter().Digest("x") || d == other.Digest("x") {
		t.Error("the digest does not depend on both the text and the key")
	}
}

func TestAShortKeyPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("NewMinter accepted a short key")
		}
	}()
	identity.NewMinter(make([]byte, identity.MinKey-1))
}
