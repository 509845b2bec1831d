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

// forged is a request that an attacker signs instead of the one of a proof.
type forged struct {
	method, uri, body string
	host              string // "": that of the uri
	header            http.Header
	presign           bool
}

// honest is the request of a proof, for an attacker to change.
func honest(t *testing.T, c aws.Credentials) forged {
	t.Helper()
	r, err := awsiam.NewRequest(t.Context(), frankfurt, challenge, epoch, c.SessionToken)
	if err != nil {
		t.Fatal(err)
	}
	return forged{method: r.Method, uri: r.URL.String(), body: awsiam.Body, header: r.Header}
}

// request signs f as its author would.
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

// Each row is a request that STS itself takes, as the row shows, and whose
// signature is then handed in as a proof. CVE-2020-16250 (Vault) was a choice
// of host, headers and action; CVE-2022-2385 (aws-iam-authenticator) was a
// parameter given twice, one of them unsigned.
func TestASignatureOfAnotherRequestIsNoProof(t *testing.T) {
	for name, forge := range map[string]func(*forged){
		"another action in the body acts as its caller":   func(f *forged) { f.body = "Action=GetSessionToken&Version=2011-06-15" },
		"a second action in the body overrides the first": func(f *forged) { f.body += "&Action=AssumeRoleWithWebIdentity" },
		"a longer body smuggles parameters":               func(f *forged) { f.body += "&X-Fairlead-Nonce=other" },
		"an action in the query overrides the body's":     func(f *forged) { f.uri += "?Action=GetSessionToken&Version=2011-06-15" },
		"a path is added": func(f *forged) { f.uri += "x" },
		"an answer in JSON is read by another parser": func(f *forged) { f.header.Set("Accept", "application/json") },
		"the nonce is given twice, the old one first": func(f *forged) { f.header.Add("X-Fairlead-Nonce", "fln_another.nonce.of.yesterday") },
		"the audience is given twice":                 func(f *forged) { f.header.Add("X-Fairlead-Audience", "evil.example") },
		"the nonce has ours for its end":              func(f *forged) { f.header.Set("X-Fairlead-Nonce", "x"+challenge.Nonce) },
		"the nonce is not signed":                     func(f *forged) { f.header.Del("X-Fairlead-Nonce") },
		"the audience is not signed":                  func(f *forged) { f.header.Del("X-Fairlead-Audience") },
		"what is asked for is not signed":             func(f *forged) { f.header.Del("X-Fairlead-Statement") },
		"a plain GetCallerIdentity of some other tool is used": func(f *forged) {
			f.header = http.Header{"X-Amz-Security-Token": f.header["X-Amz-Security-Token"], "Content-Type": f.header["Content-Type"]}
		},
		"one header more is signed":                          func(f *forged) { f.header.Set("X-Forwarded-Host", "evil.example") },
		"the content type makes STS read the body otherwise": func(f *forged) { f.header.Set("Content-Type", "application/x-amz-json-1.1") },
		"the host header names another region's host":        func(f *forged) { f.host = "sts-fips.eu-central-1.amazonaws.com" },
		"the host header is that of an attacker":             func(f *forged) { f.host = "sts.eu-central-1.amazonaws.com.evil.example" },
		"the host header is in another case":                 func(f *forged) { f.host = "STS.EU-CENTRAL-1.AMAZONAWS.COM" },
		"the host header has a port":                         func(f *forged) { f.host = "sts.eu-central-1.amazonaws.com:8443" },
		"a presigned address is reused as a bearer token": func(f *forged) {
			f.method, f.presign, f.body = http.MethodGet, true, ""
			f.uri += "?" + awsiam.Body
		},
		"a presigned address has our headers too": func(f *forged) { f.presign = true },
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
				t.Fatalf("STS does not take the forged request, so it shows nothing: %s %s", a.Status, answer)
			}
			p := w.proof(t, creds, frankfurt, challenge, epoch)
			if p.Signature == sig {
				t.Fatal("the forged request is the honest one")
			}
			p.Signature = sig
			_, err = w.verifier.Verify(t.Context(), p, challenge)
			if got := reason(err); got != "signature" {
				t.Errorf("refused for %q, want signature (%v)", got, err)
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
		"a proof of an earlier nonce is replayed":                 other(func(c *awsiam.Challenge) { c.Nonce = "fln_n0123456789.0.1795000060.mac" }),
		"a proof made for an evil control plane is passed on":     other(func(c *awsiam.Challenge) { c.Audience = "evil.example" }),
		"a proof for the same host on another port is passed on":  other(func(c *awsiam.Challenge) { c.Audience += ":8443" }),
		"a proof for one runner opens a session of another":       other(func(c *awsiam.Challenge) { c.Statement = []byte("fairlead-session-v1\nother\n") }),
		"a proof without a statement opens a session of a runner": other(func(c *awsiam.Challenge) { c.Statement = nil }),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			creds := w.sts.AssumeRole("aws", account, role, roleID, "task-1")
			p := w.proof(t, creds, frankfurt, c, epoch)
			_, err := w.verifier.Verify(t.Context(), p, challenge)
			if got := reason(err); got != "signature" {
				t.Errorf("refused for %q, want signature (%v)", got, err)
			}
			if _, err := w.verifier.Verify(t.Context(), p, c); err != nil {
				t.Errorf("the proof is not even good for its own challenge: %v", err)
			}
		})
	}
}

// A challenge is made by us; one that could break out of its header is a fault
// of ours, which must not reach the wire on either side.
func TestAChallengeStaysInItsHeader(t *testing.T) {
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
			t.Errorf("%q: got %v", c, err)
		}
	}
	if w.sts.Asked() != 0 {
		t.Error("STS was asked")
	}
}

func TestAProofThatIsNoneNeverReachesSTS(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*awsiam.Proof)
		want   string
	}{
		"the host is an attacker's":                       {func(p *awsiam.Proof) { p.Host = "evil.example" }, "host"},
		"the host ends like one of STS":                   {func(p *awsiam.Proof) { p.Host = "evil-sts.eu-central-1.amazonaws.com" }, "host"},
		"the host begins like one of STS":                 {func(p *awsiam.Proof) { p.Host = "sts.eu-central-1.amazonaws.com.evil.example" }, "host"},
		"the host is in another case":                     {func(p *awsiam.Proof) { p.Host = "STS.eu-central-1.amazonaws.com" }, "host"},
		"the host has a final dot":                        {func(p *awsiam.Proof) { p.Host += "." }, "host"},
		"the host has a port":                             {func(p *awsiam.Proof) { p.Host += ":8443" }, "host"},
		"the host has a user before it":                   {func(p *awsiam.Proof) { p.Host = "x@" + p.Host }, "host"},
		"the host has a user that looks like one of STS":  {func(p *awsiam.Proof) { p.Host += "@evil.example" }, "host"},
		"the host has a path":                             {func(p *awsiam.Proof) { p.Host += "/x" }, "host"},
		"the host has a query that comments out ours":     {func(p *awsiam.Proof) { p.Host += "/?Action=GetSessionToken#" }, "host"},
		"the host has a line break":                       {func(p *awsiam.Proof) { p.Host += "\r\nX: y" }, "host"},
		"the host has a space":                            {func(p *awsiam.Proof) { p.Host = " " + p.Host }, "host"},
		"the host is a service of the customer's account": {func(p *awsiam.Proof) { p.Host = "s3.eu-central-1.amazonaws.com" }, "host"},
		"the host is the metadata service":                {func(p *awsiam.Proof) { p.Host = "169.254.169.254" }, "host"},
		"the host is this machine":                        {func(p *awsiam.Proof) { p.Host = "localhost" }, "host"},
		"the host is the global one":                      {func(p *awsiam.Proof) { p.Host = "sts.amazonaws.com" }, "host"},
		"there is no host":                                {func(p *awsiam.Proof) { p.Host = "" }, "host"},

		"the date is of yesterday":                    {func(p *awsiam.Proof) { p.Date = "20261120T120000Z" }, "clock"},
		"the date is six minutes old":                 {func(p *awsiam.Proof) { p.Date = "20261121T115400Z" }, "clock"},
		"the date is six minutes ahead":               {func(p *awsiam.Proof) { p.Date = "20261121T120600Z" }, "clock"},
		"the date is so old that a duration wraps":    {func(p *awsiam.Proof) { p.Date = "00010101T000000Z" }, "clock"},
		"the date has a zone":                         {func(p *awsiam.Proof) { p.Date = "20261121T120000+0000" }, "malformed"},
		"the date has a fraction":                     {func(p *awsiam.Proof) { p.Date = "20261121T120000.5Z" }, "malformed"},
		"the date has a line break":                   {func(p *awsiam.Proof) { p.Date += "\n" }, "malformed"},
		"the date is in another format":               {func(p *awsiam.Proof) { p.Date = "Sat, 21 Nov 2026 12:00:00 GMT" }, "malformed"},
		"there is no date":                            {func(p *awsiam.Proof) { p.Date = "" }, "malformed"},
		"the key holds another scope":                 {func(p *awsiam.Proof) { p.AccessKeyID += "/20261121/us-east-1/sts/aws4_request" }, "malformed"},
		"the key holds other signed headers":          {func(p *awsiam.Proof) { p.AccessKeyID += ", SignedHeaders=host" }, "malformed"},
		"the key holds a header":                      {func(p *awsiam.Proof) { p.AccessKeyID += "\r\nAccept: application/json" }, "malformed"},
		"the key is a user's static one":              {func(p *awsiam.Proof) { p.AccessKeyID = "AKIAEXAMPLEEXAMPLE01" }, "static-key"},
		"there is no key":                             {func(p *awsiam.Proof) { p.AccessKeyID = "" }, "malformed"},
		"the token holds a header":                    {func(p *awsiam.Proof) { p.SessionToken += "\r\nX-Fairlead-Nonce: other" }, "malformed"},
		"the token holds a space":                     {func(p *awsiam.Proof) { p.SessionToken += " x" }, "malformed"},
		"the token is huge":                           {func(p *awsiam.Proof) { p.SessionToken = strings.Repeat("A", 8193) }, "malformed"},
		"there is no token":                           {func(p *awsiam.Proof) { p.SessionToken = "" }, "malformed"},
		"the signature is in upper case":              {func(p *awsiam.Proof) { p.Signature = strings.ToUpper(p.Signature) }, "malformed"},
		"the signature has a second one behind it":    {func(p *awsiam.Proof) { p.Signature += ", Signature=" + p.Signature }, "malformed"},
		"the signature is short":                      {func(p *awsiam.Proof) { p.Signature = p.Signature[:63] }, "malformed"},
		"the signature has a line break at its end":   {func(p *awsiam.Proof) { p.Signature += "\n" }, "malformed"},
		"there is no signature":                       {func(p *awsiam.Proof) { p.Signature = "" }, "malformed"},
		"there is nothing":                            {func(p *awsiam.Proof) { *p = awsiam.Proof{} }, "host"},
		"the token holds what looks like a full stop": {func(p *awsiam.Proof) { p.SessionToken += "\u2024" }, "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.proof(t, w.sts.AssumeRole("aws", account, role, roleID, "task-1"), frankfurt, challenge, epoch)
			row.change(&p)
			_, err := w.verifier.Verify(t.Context(), p, challenge)
			if got := reason(err); got != row.want {
				t.Errorf("refused for %q, want %q (%v)", got, row.want, err)
			}
			if w.sts.Asked() != 0 {
				t.Error("STS was asked")
			}
		})
	}
}

func TestSTSRefusesWhatIsNotSigned(t *testing.T) {
	for name, change := range map[string]func(*awsiam.Proof, aws.Credentials){
		"a signature is guessed":               func(p *awsiam.Proof, _ aws.Credentials) { p.Signature = strings.Repeat("0", 64) },
		"a token of another session is put in": func(p *awsiam.Proof, o aws.Credentials) { p.SessionToken = o.SessionToken },
		"a key of another session is put in":   func(p *awsiam.Proof, o aws.Credentials) { p.AccessKeyID = o.AccessKeyID },
		"key and token of another session are put in": func(p *awsiam.Proof, o aws.Credentials) {
			p.AccessKeyID, p.SessionToken = o.AccessKeyID, o.SessionToken
		},
		"the credentials are unknown, or have expired":   func(p *awsiam.Proof, _ aws.Credentials) { p.AccessKeyID = "ASIAUNKNOWNUNKNOWN01" },
		"a signature is sent to another region":          func(p *awsiam.Proof, _ aws.Credentials) { p.Host = "sts.eu-west-1.amazonaws.com" },
		"a signature of one minute is dated to the next": func(p *awsiam.Proof, _ aws.Credentials) { p.Date = "20261121T120100Z" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.proof(t, w.sts.AssumeRole("aws", account, role, roleID, "task-1"), frankfurt, challenge, epoch)
			change(&p, w.sts.AssumeRole("aws", account, "admin", "AROAADMINADMINADMIN1", "boss"))
			_, err := w.verifier.Verify(t.Context(), p, challenge)
			if got := reason(err); got != "signature" {
				t.Errorf("refused for %q, want signature (%v)", got, err)
			}
		})
	}
}

// What the verifier sends is what was signed, whatever the proof.
func TestTheRequestIsOurs(t *testing.T) {
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
