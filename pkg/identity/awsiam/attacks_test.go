package awsiam_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/fairlead/fairlead/pkg/identity/awsiam"
)

// forged is a request that an attacker signs instead of the request of a proof.
type forged struct {
	method, uri, body string
	host              string // "": the host of the uri
	header            http.Header
	presign           bool
}

// honest returns the request of a proof, which an attacker then changes.
func honest(t *testing.T, c aws.Credentials) forged {
	t.Helper()
	r, err := awsiam.NewRequest(t.Context(), frankfurt, challenge, epoch, c.SessionToken)
	if err != nil {
		t.Fatal(err)
	}
	return forged{method: r.Method, uri: r.URL.String(), body: awsiam.Body, header: r.Header}
}

// request signs f.
func (f forged) request(t *testing.T, c aws.Credentials, at time.Time) (*http.Request, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), f.method, f.uri, strings.NewReader(f.body))
	if err != nil {
		t.Fatal(err)
	}
	if f.host != "" {
		r.Host = f.host
	}
	r.Header = f.header
	sum := sha256.Sum256([]byte(f.body))
	if f.presign {
		r.Header.Del("X-Amz-Security-Token")
		r.Header.Del("X-Amz-Date")
		uri, signed, err := v4.NewSigner().PresignHTTP(t.Context(), c, r, hex.EncodeToString(sum[:]), "sts", "eu-central-1", at)
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(uri)
		if err != nil {
			t.Fatal(err)
		}
		r.URL, r.Header = u, signed
		return r, u.Query().Get("X-Amz-Signature")
	}
	if err := v4.NewSigner().SignHTTP(t.Context(), c, r, hex.EncodeToString(sum[:]), "sts", "eu-central-1", at); err != nil {
		t.Fatal(err)
	}
	_, sig, _ := strings.Cut(r.Header.Get("Authorization"), "Signature=")
	return r, sig
}

// Each case is a request that STS itself accepts. The test checks this, and then sends
// the request's signature as a proof. CVE-2020-16250 (Vault) let the caller choose host,
// headers and action. CVE-2022-2385 (aws-iam-authenticator) accepted a request with the
// same parameter twice, once signed and once unsigned.
func TestASignatureOfAnotherRequestIsNoProof(t *testing.T) {
	for name, forge := range map[string]func(*forged){
		"the body has another action":                 func(f *forged) { f.body = "Action=GetSessionToken&Version=2011-06-15" },
		"the body has a second action":                func(f *forged) { f.body += "&Action=AssumeRoleWithWebIdentity" },
		"the body has additional parameters":          func(f *forged) { f.body += "&X-Fairlead-Nonce=other" },
		"the query has another action":                func(f *forged) { f.uri += "?Action=GetSessionToken&Version=2011-06-15" },
		"the path is longer":                          func(f *forged) { f.uri += "x" },
		"the request asks for an answer in JSON":      func(f *forged) { f.header.Set("Accept", "application/json") },
		"the nonce is given twice, the old one first": func(f *forged) { f.header.Add("X-Fairlead-Nonce", "fln_another.nonce.of.yesterday") },
		"the audience is given twice":                 func(f *forged) { f.header.Add("X-Fairlead-Audience", "evil.example") },
		"the nonce ends with the right nonce":         func(f *forged) { f.header.Set("X-Fairlead-Nonce", "x"+challenge.Nonce) },
		"the nonce is not signed":                     func(f *forged) { f.header.Del("X-Fairlead-Nonce") },
		"the audience is not signed":                  func(f *forged) { f.header.Del("X-Fairlead-Audience") },
		"the statement is not signed":                 func(f *forged) { f.header.Del("X-Fairlead-Statement") },
		"the request is a plain GetCallerIdentity of another tool": func(f *forged) {
			f.header = http.Header{"X-Amz-Security-Token": f.header["X-Amz-Security-Token"], "Content-Type": f.header["Content-Type"]}
		},
		"an additional header is signed":                       func(f *forged) { f.header.Set("X-Forwarded-Host", "evil.example") },
		"another content type makes STS read the body as JSON": func(f *forged) { f.header.Set("Content-Type", "application/x-amz-json-1.1") },
		"the host header names a FIPS host":                    func(f *forged) { f.host = "sts-fips.eu-central-1.amazonaws.com" },
		"the host header is that of an attacker":               func(f *forged) { f.host = "sts.eu-central-1.amazonaws.com.evil.example" },
		"the host header is in another case":                   func(f *forged) { f.host = "STS.EU-CENTRAL-1.AMAZONAWS.COM" },
		"the host header has a port":                           func(f *forged) { f.host = "sts.eu-central-1.amazonaws.com:8443" },
		"the request is a presigned URL": func(f *forged) {
			f.method, f.presign, f.body = http.MethodGet, true, ""
			f.uri += "?" + awsiam.Body
		},
		"the request is a presigned URL with the proof's headers": func(f *forged) { f.presign = true },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			creds := w.sts.AssumeRole("aws", account, role, roleID, "task-1")
			f := honest(t, creds)
			forge(&f)
			r, sig := f.request(t, creds, epoch)
			a, err := w.via.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			answer, _ := io.ReadAll(a.Body)
			a.Body.Close()
			if a.StatusCode != http.StatusOK {
				t.Fatalf("STS refuses the forged request, so the case shows nothing: %s %s", a.Status, answer)
			}
			p := w.proof(t, creds, frankfurt, challenge, epoch)
			if p.Signature == sig {
				t.Fatal("the forged request has the signature of the honest request")
			}
			p.Signature = sig
			_, err = w.verifier.Verify(t.Context(), p, challenge)
			if got := reason(err); got != "signature" {
				t.Errorf("the reason is %q, want signature (%v)", got, err)
			}
		})
	}
}

func TestAProofIsGoodForItsChallengeOnly(t *testing.T) {
	other := func(change func(*awsiam.Challenge)) awsiam.Challenge {
		c := challenge
		change(&c)
		return c
	}
	for name, c := range map[string]awsiam.Challenge{
		"an earlier nonce":                      other(func(c *awsiam.Challenge) { c.Nonce = "fln_n0123456789.0.1795000060.mac" }),
		"the audience of another control plane": other(func(c *awsiam.Challenge) { c.Audience = "evil.example" }),
		"the audience with another port":        other(func(c *awsiam.Challenge) { c.Audience += ":8443" }),
		"the statement of another runner":       other(func(c *awsiam.Challenge) { c.Statement = []byte("fairlead-session-v1\nother\n") }),
		"no statement":                          other(func(c *awsiam.Challenge) { c.Statement = nil }),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			creds := w.sts.AssumeRole("aws", account, role, roleID, "task-1")
			p := w.proof(t, creds, frankfurt, c, epoch)
			_, err := w.verifier.Verify(t.Context(), p, challenge)
			if got := reason(err); got != "signature" {
				t.Errorf("the reason is %q, want signature (%v)", got, err)
			}
			if _, err := w.verifier.Verify(t.Context(), p, c); err != nil {
				t.Errorf("the proof is not valid for its own challenge: %v", err)
			}
		})
	}
}

// The control plane makes the challenge. A challenge that could end its header and begin
// another header is a defect of the control plane, and must never be sent.
func TestChallengeCannotLeaveItsHeader(t *testing.T) {
	w := newWorld(t)
	creds := w.sts.AssumeRole("aws", account, role, roleID, "task-1")
	good := w.proof(t, creds, frankfurt, challenge, epoch)
	for _, c := range []awsiam.Challenge{
		{Nonce: "", Audience: challenge.Audience},
		{Nonce: "fln_short", Audience: challenge.Audience},
		{Nonce: challenge.Nonce + "\r\nAccept: application/json", Audience: challenge.Audience},
		{Nonce: challenge.Nonce + "  ", Audience: challenge.Audience},
		{Nonce: challenge.Nonce, Audience: ""},
		{Nonce: challenge.Nonce, Audience: "Fairlead.Example"},
		{Nonce: challenge.Nonce, Audience: "fairlead.example, evil.example"},
		{Nonce: challenge.Nonce, Audience: "fairlead.example\n"},
	} {
		if _, err := w.verifier.Verify(t.Context(), good, c); err == nil || !strings.HasPrefix(reason(err), "error:") {
			t.Errorf("challenge %q: the error is %v", c, err)
		}
	}
	if w.sts.Asked() != 0 {
		t.Error("a request was sent to STS")
	}
}

func TestAMalformedProofIsNotSentToSTS(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*awsiam.Proof)
		want   string
	}{
		"the host is evil.example":               {func(p *awsiam.Proof) { p.Host = "evil.example" }, "host"},
		"the host ends with a host of STS":       {func(p *awsiam.Proof) { p.Host = "evil-sts.eu-central-1.amazonaws.com" }, "host"},
		"the host begins with a host of STS":     {func(p *awsiam.Proof) { p.Host = "sts.eu-central-1.amazonaws.com.evil.example" }, "host"},
		"the host is in another case":            {func(p *awsiam.Proof) { p.Host = "STS.eu-central-1.amazonaws.com" }, "host"},
		"the host has a final dot":               {func(p *awsiam.Proof) { p.Host += "." }, "host"},
		"the host has a port":                    {func(p *awsiam.Proof) { p.Host += ":8443" }, "host"},
		"the host has a user":                    {func(p *awsiam.Proof) { p.Host = "x@" + p.Host }, "host"},
		"the host has a host of STS as its user": {func(p *awsiam.Proof) { p.Host += "@evil.example" }, "host"},
		"the host has a path":                    {func(p *awsiam.Proof) { p.Host += "/x" }, "host"},
		"the host has a query and a fragment":    {func(p *awsiam.Proof) { p.Host += "/?Action=GetSessionToken#" }, "host"},
		"the host has a line break":              {func(p *awsiam.Proof) { p.Host += "\r\nX: y" }, "host"},
		"the host has a space":                   {func(p *awsiam.Proof) { p.Host = " " + p.Host }, "host"},
		"the host is another AWS service":        {func(p *awsiam.Proof) { p.Host = "s3.eu-central-1.amazonaws.com" }, "host"},
		"the host is the metadata service":       {func(p *awsiam.Proof) { p.Host = "169.254.169.254" }, "host"},
		"the host is localhost":                  {func(p *awsiam.Proof) { p.Host = "localhost" }, "host"},
		"the host is the global host of STS":     {func(p *awsiam.Proof) { p.Host = "sts.amazonaws.com" }, "host"},
		"there is no host":                       {func(p *awsiam.Proof) { p.Host = "" }, "host"},

		"the date is one day old":                          {func(p *awsiam.Proof) { p.Date = "20261120T120000Z" }, "clock"},
		"the date is six minutes old":                      {func(p *awsiam.Proof) { p.Date = "20261121T115400Z" }, "clock"},
		"the date is six minutes ahead":                    {func(p *awsiam.Proof) { p.Date = "20261121T120600Z" }, "clock"},
		"the date is so old that the difference overflows": {func(p *awsiam.Proof) { p.Date = "00010101T000000Z" }, "clock"},
		"the date has a zone":                              {func(p *awsiam.Proof) { p.Date = "20261121T120000+0000" }, "malformed"},
		"the date has a fraction":                          {func(p *awsiam.Proof) { p.Date = "20261121T120000.5Z" }, "malformed"},
		"the date has a line break":                        {func(p *awsiam.Proof) { p.Date += "\n" }, "malformed"},
		"the date is in another format":                    {func(p *awsiam.Proof) { p.Date = "Sat, 21 Nov 2026 12:00:00 GMT" }, "malformed"},
		"there is no date":                                 {func(p *awsiam.Proof) { p.Date = "" }, "malformed"},
		"the key contains another scope":                   {func(p *awsiam.Proof) { p.AccessKeyID += "/20261121/us-east-1/sts/aws4_request" }, "malformed"},
		"the key contains other signed headers":            {func(p *awsiam.Proof) { p.AccessKeyID += ", SignedHeaders=host" }, "malformed"},
		"the key contains a header":                        {func(p *awsiam.Proof) { p.AccessKeyID += "\r\nAccept: application/json" }, "malformed"},
		"the key is a user's static one":                   {func(p *awsiam.Proof) { p.AccessKeyID = "AKIAEXAMPLEEXAMPLE01" }, "static-key"},
		"there is no key":                                  {func(p *awsiam.Proof) { p.AccessKeyID = "" }, "malformed"},
		"the token contains a header":                      {func(p *awsiam.Proof) { p.SessionToken += "\r\nX-Fairlead-Nonce: other" }, "malformed"},
		"the token contains a space":                       {func(p *awsiam.Proof) { p.SessionToken += " x" }, "malformed"},
		"the token is huge":                                {func(p *awsiam.Proof) { p.SessionToken = strings.Repeat("A", 8193) }, "malformed"},
		"there is no token":                                {func(p *awsiam.Proof) { p.SessionToken = "" }, "malformed"},
		"the signature is in upper case":                   {func(p *awsiam.Proof) { p.Signature = strings.ToUpper(p.Signature) }, "malformed"},
		"a second signature follows the signature":         {func(p *awsiam.Proof) { p.Signature += ", Signature=" + p.Signature }, "malformed"},
		"the signature is short":                           {func(p *awsiam.Proof) { p.Signature = p.Signature[:63] }, "malformed"},
		"the signature has a line break at its end":        {func(p *awsiam.Proof) { p.Signature += "\n" }, "malformed"},
		"there is no signature":                            {func(p *awsiam.Proof) { p.Signature = "" }, "malformed"},
		"the proof is empty":                               {func(p *awsiam.Proof) { *p = awsiam.Proof{} }, "host"},
		"the token contains U+2024 for a full stop":        {func(p *awsiam.Proof) { p.SessionToken += "\u2024" }, "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.proof(t, w.sts.AssumeRole("aws", account, role, roleID, "task-1"), frankfurt, challenge, epoch)
			row.change(&p)
			_, err := w.verifier.Verify(t.Context(), p, challenge)
			if got := reason(err); got != row.want {
				t.Errorf("the reason is %q, want %q (%v)", got, row.want, err)
			}
			if w.sts.Asked() != 0 {
				t.Error("a request was sent to STS")
			}
		})
	}
}

func TestSTSRefusesAChangedProof(t *testing.T) {
	for name, change := range map[string]func(*awsiam.Proof, aws.Credentials){
		"another signature":            func(p *awsiam.Proof, _ aws.Credentials) { p.Signature = strings.Repeat("0", 64) },
		"the token of another session": func(p *awsiam.Proof, o aws.Credentials) { p.SessionToken = o.SessionToken },
		"the key of another session":   func(p *awsiam.Proof, o aws.Credentials) { p.AccessKeyID = o.AccessKeyID },
		"key and token of another session": func(p *awsiam.Proof, o aws.Credentials) {
			p.AccessKeyID, p.SessionToken = o.AccessKeyID, o.SessionToken
		},
		"unknown or expired credentials": func(p *awsiam.Proof, _ aws.Credentials) { p.AccessKeyID = "ASIAUNKNOWNUNKNOWN01" },
		"the host of another region":     func(p *awsiam.Proof, _ aws.Credentials) { p.Host = "sts.eu-west-1.amazonaws.com" },
		"the date is one minute later":   func(p *awsiam.Proof, _ aws.Credentials) { p.Date = "20261121T120100Z" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.proof(t, w.sts.AssumeRole("aws", account, role, roleID, "task-1"), frankfurt, challenge, epoch)
			change(&p, w.sts.AssumeRole("aws", account, "admin", "AROAADMINADMINADMIN1", "boss"))
			_, err := w.verifier.Verify(t.Context(), p, challenge)
			if got := reason(err); got != "signature" {
				t.Errorf("the reason is %q, want signature (%v)", got, err)
			}
		})
	}
}

// The verifier sends exactly the request that the runner signed.
func TestVerifierSendsTheSignedRequest(t *testing.T) {
	var got []byte
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b bytes.Buffer
		r.Write(&b)
		got = b.Bytes()
		w.WriteHeader(http.StatusTeapot)
	})
	sts := newWorld(t)
	p := sts.proof(t, sts.sts.AssumeRole("aws", account, role, roleID, "task-1"), frankfurt, challenge, epoch)
	v := awsiam.NewVerifier(reach(t, h), now, awsiam.Options{})
	if _, err := v.Verify(t.Context(), p, challenge); reason(err) != "unavailable" {
		t.Fatalf("got %v", err)
	}
	sum := sha256.Sum256(challenge.Statement)
	want := strings.Join([]string{
		"POST / HTTP/1.1",
		"Host: sts.eu-central-1.amazonaws.com",
		"User-Agent: fairlead",
		"Content-Length: 43",
		"Accept-Encoding: identity",
		"Authorization: AWS4-HMAC-SHA256 Credential=" + p.AccessKeyID + "/20261121/eu-central-1/sts/aws4_request, SignedHeaders=" + awsiam.SignedHeaders + ", Signature=" + p.Signature,
		"Content-Type: application/x-www-form-urlencoded; charset=utf-8",
		"X-Amz-Date: 20261121T120000Z",
		"X-Amz-Security-Token: " + p.SessionToken,
		"X-Fairlead-Audience: fairlead.example",
		"X-Fairlead-Nonce: " + challenge.Nonce,
		"X-Fairlead-Statement: " + hex.EncodeToString(sum[:]),
		"", "Action=GetCallerIdentity&Version=2011-06-15"}, "\r\n")
	if string(got) != want {
		t.Errorf("STS was sent\n%s\nwant\n%s", got, want)
	}
}
