package oidc_test

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/identity/oidc"
	"github.com/fairlead/fairlead/pkg/identity/oidctest"
)

// Each row is an ID token of a person's login. Its reason is that of the refusal; "": the person is eva.
func TestPersonsAreKnownByTheirIDTokens(t *testing.T) {
	const client = "fairlead"
	for name, row := range map[string]struct {
		claims claims
		rule   func(*oidc.Client)
		reason string
		email  string
	}{
		"a person with a verified email":                    {nil, nil, "", "eva@example.com"},
		"a provider that writes the claim as text":          {claims{"email_verified": "true"}, nil, "", "eva@example.com"},
		"an email that the issuer has not verified is none": {claims{"email_verified": false}, nil, "", ""},
		"an email without the claim is none":                {claims{"email_verified": nil}, nil, "", ""},
		"the operator trusts the emails of the issuer":      {claims{"email_verified": nil}, func(c *oidc.Client) { c.TrustEmail = true }, "", "eva@example.com"},
		"no email":                                             {claims{"email": nil}, nil, "", ""},
		"a token for another client":                           {claims{"aud": "other"}, nil, "audience", ""},
		"a token for an API of the same issuer":                {claims{"aud": "https://fairlead.example"}, nil, "audience", ""},
		"a token for two clients, without an authorized party": {claims{"aud": []string{client, "other"}}, nil, "audience", ""},
		"a token for two clients, issued to this one":          {claims{"aud": []string{client, "other"}, "azp": client}, nil, "", "eva@example.com"},
		"a token that was issued to another client":            {claims{"azp": "other"}, nil, "audience", ""},
		"a token for others, issued to this client":            {claims{"aud": []string{"a", "b"}, "azp": client}, nil, "audience", ""},
		"a token of yesterday":                                 {claims{"iat": noon.Add(-25 * time.Hour).Unix(), "exp": noon.Add(-24 * time.Hour).Unix()}, nil, "expired", ""},
		"a token of tomorrow":                                  {claims{"iat": noon.Add(24 * time.Hour).Unix(), "exp": noon.Add(25 * time.Hour).Unix(), "nbf": nil}, nil, "early", ""},
		"a token without a subject":                            {claims{"sub": nil}, nil, "claims", ""},
		"a token of another issuer":                            {claims{"iss": "https://other.example"}, nil, "issuer", ""},
		"the settings name another issuer":                     {nil, func(c *oidc.Client) { c.Issuer += "/x" }, "issuer", ""},
		"the keys in the settings are those of another issuer": {nil, func(c *oidc.Client) { c.Keys = oidctest.Unserved("", time.Now).KeySet() }, "signature", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := oidc.Client{Issuer: w.issuer.URL, ID: client}
			if row.rule != nil {
				row.rule(&c)
			}
			all := claims{"sub": "eva", "email": "Eva@Example.com", "email_verified": true, "name": "Eva", "nonce": "n"}
			for k, v := range row.claims {
				all[k] = v
			}
			p, err := w.verifier.VerifyPerson(t.Context(), w.issuer.Token(client, all), c)
			if reasonOf(err) != row.reason || p.Email != row.email {
				t.Fatalf("the person is %+v with the reason %q, want the email %q and the reason %q", p, reasonOf(err), row.email, row.reason)
			}
			if err == nil && (p.Subject != "eva" || p.Name != "Eva" || p.Nonce != "n" || p.Issuer != w.issuer.URL || p.Use == "" || !p.Issued.Equal(noon) || !p.Expires.Equal(noon.Add(10*time.Minute))) {
				t.Errorf("the person is %+v", p)
			}
		})
	}
}

func TestInvalidIssuersOfLoginsAreRefused(t *testing.T) {
	good := oidc.Client{Issuer: "https://issuer.example", ID: "fairlead"}
	if err := good.Check(oidc.Rules{}); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*oidc.Client){
		"without TLS":                   func(c *oidc.Client) { c.Issuer = "http://issuer.example" },
		"with a query":                  func(c *oidc.Client) { c.Issuer += "?x" },
		"without a client":              func(c *oidc.Client) { c.ID = "" },
		"with a client that is no text": func(c *oidc.Client) { c.ID = "a\nb" },
		"with a secret that is no text": func(c *oidc.Client) { c.Secret = "a\nb" },
		"with keys that are none":       func(c *oidc.Client) { c.Keys = []byte(`{}`) },
		"with a key that signs":         func(c *oidc.Client) { c.Keys = []byte(`{"keys":[{"kty":"oct","k":"AA"}]}`) },
	} {
		c := good
		change(&c)
		if c.Check(oidc.Rules{}) == nil {
			t.Errorf("an issuer %s is accepted", name)
		}
	}
}
