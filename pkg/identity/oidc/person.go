package oidc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Client is an issuer at which people log in, and the client by which the issuer knows the program with which they do. The
// program runs on the machine of each person, so it has no secret.
type Client struct {
	// Issuer must equal iss byte for byte.
	Issuer string `json:"issuer"`
	// ID of the client must be in aud.
	ID string `json:"client_id"`
	// Secret is for issuers that ask each client for one. It is given to every caller, so it is none.
	Secret string `json:"client_secret,omitempty"`
	// TrustEmail accepts the email of a token without the claim email_verified: the issuer itself gives people their emails.
	TrustEmail bool `json:"trust_email,omitempty"`
	// Keys is the JSON Web Key Set of an issuer that the control plane cannot reach; empty: the issuer publishes its keys.
	Keys json.RawMessage `json:"keys,omitempty"`
}

// Check returns an error of KindInvalid if c is not valid.
func (c Client) Check(r Rules) error {
	if _, err := r.issuer(c.Issuer); err != nil {
		return err
	}
	switch {
	case c.ID == "" || len(c.ID) > maxURL || !printable(c.ID):
		return invalid("an issuer of logins needs a client id of at most %d printable ASCII characters", maxURL)
	case len(c.Secret) > maxURL || !printable(c.Secret):
		return invalid("the client secret is longer than %d characters, or not printable ASCII", maxURL)
	}
	return checkKeys(c.Keys)
}

// Person is the content of an accepted token of a person.
type Person struct {
	Issuer, Subject string
	Email           string // in lower case; "": the token has no email that the issuer has verified
	Name            string // for people to read; may be empty
	Nonce           string // which the request for the token had; "": none
	Issued, Expires time.Time
	Use             string // identifies the token, as Identity.Use
}

// maxText is the longest email and the longest name of a person, in bytes.
const maxText = 254

// VerifyPerson returns the person of an ID token for the client. The error is of KindUnauthenticated if the token is not
// accepted, with the reason in its details. It is of KindUnavailable if the issuer's keys could not be fetched. The caller
// must compare the nonce, and ensure that the token is used once.
func (v *Verifier) VerifyPerson(ctx context.Context, raw string, c Client) (Person, error) {
	t, err := parse(raw)
	if err != nil {
		return Person{}, err
	}
	text := func(name string) string { s, _ := t.claims[name].(string); return s }
	p := Person{Issuer: text("iss"), Subject: text("sub"), Nonce: text("nonce")}
	switch {
	case p.Issuer != c.Issuer:
		return Person{}, refused("issuer", "its issuer is %s", quote(p.Issuer))
	case p.Subject == "" || len(p.Subject) > maxSubject:
		return Person{}, refused("claims", "its sub is missing, too long or not text")
	}
	if p.Expires, err = v.signed(ctx, t, c.Issuer, c.Keys); err != nil {
		return Person{}, err
	}
	p.Issued = t.time("iat")
	if err := t.forClient(c.ID); err != nil {
		return Person{}, err
	}
	if t.verifiedEmail() || c.TrustEmail {
		p.Email = strings.ToLower(text("email"))
	}
	if p.Name = text("name"); len(p.Name) > maxText {
		p.Name = ""
	}
	if len(p.Email) > maxText {
		p.Email = ""
	}
	use := sha256.Sum256([]byte(p.Issuer + "\n" + string(t.payload)))
	p.Use = hex.EncodeToString(use[:])
	return p, nil
}

// forClient returns an error unless the token was issued to the client: it is the only audience, or it is one of them and the
// authorized party (OpenID Connect Core, 3.1.3.7).
func (t token) forClient(id string) error {
	party, hasParty := t.claims["azp"]
	if hasParty && party != id {
		return refused("audience", "it was issued to another program")
	}
	if audience(t.claims["aud"]) == id {
		return nil
	}
	if list, ok := t.claims["aud"].([]any); ok && hasParty && slices.Contains(list, any(id)) {
		return nil
	}
	return refused("audience", "it is not for this program: its audience is not the client id of the issuer's settings")
}

// verifiedEmail reports whether the issuer has verified the email. Some issuers write the claim as text.
func (t token) verifiedEmail() bool {
	v := t.claims["email_verified"]
	return v == true || v == "true"
}
