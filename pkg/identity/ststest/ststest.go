// Package ststest is a fake of STS for proofs of identity. It recomputes the signature
// of each request with the AWS SDK's own signer, over exactly the headers that the
// request lists as signed, and knows to which principal it gave credentials.
//
// Like STS, it also accepts other actions, JSON answers and presigned URLs. So a test can
// show that STS accepts an attacker's request, and that the request still proves nothing.
package ststest

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// skew is how much the time of a signature may differ from the clock.
const skew = 15 * time.Minute

// Principal is the owner of credentials.
type Principal struct{ Account, ARN, UserID string }

// Server answers GetCallerIdentity for the principals that it knows. Safe for concurrent
// use.
type Server struct {
	now func() time.Time

	mu     sync.Mutex
	known  map[string]entry // by access key
	serial int
	asked  int
	assume Assume
	token  func(form url.Values) (life time.Duration, given func(aws.Credentials), code string)
}

type entry struct {
	creds   aws.Credentials
	expires time.Time // zero: never
	who     Principal
}

// Assume decides a request for the action AssumeRole. It gets the caller's access key and
// the form of the request. It returns how long the credentials are valid and an optional
// function that gets them, or an error code of STS.
type Assume func(accessKeyID string, form url.Values) (life time.Duration, given func(aws.Credentials), code string)

// New returns a Server that knows no principal.
func New(now func() time.Time) *Server { return &Server{now: now, known: map[string]entry{}} }

// AssumeRole returns credentials of a role's session. It takes no path, because the ARN
// of an assumed role has none.
func (s *Server) AssumeRole(partition, account, role, roleID, name string) aws.Credentials {
	return s.Give(session(partition, account, role, roleID, name))
}

func session(partition, account, role, roleID, name string) Principal {
	return Principal{Account: account, UserID: roleID + ":" + name, ARN: "arn:" + partition + ":sts::" + account + ":assumed-role/" + role + "/" + name}
}

// Give creates temporary credentials of a principal, which do not expire.
func (s *Server) Give(who Principal) aws.Credentials { return s.give(who, time.Time{}) }

func (s *Server) give(who Principal, expires time.Time) aws.Credentials {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial++
	c := aws.Credentials{
		AccessKeyID:     fmt.Sprintf("ASIA%016d", s.serial),
		SecretAccessKey: fmt.Sprintf("secret/of+key%026d", s.serial),
		SessionToken:    fmt.Sprintf("FwoGZXIvYXdzE+token/%040d==", s.serial),
		Source:          "ststest",
	}
	s.known[c.AccessKeyID] = entry{c, expires, who}
	return c
}

// Principal returns the principal to which the access key belongs.
func (s *Server) Principal(accessKeyID string) (Principal, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.known[accessKeyID]
	return e.who, ok
}

// LetAssume enables the action AssumeRole. decide gets the form of the request, and
// returns how long the credentials are valid, or an error code of STS.
func (s *Server) LetAssume(decide func(url.Values) (life time.Duration, code string)) {
	s.LetCallersAssume(func(_ string, form url.Values) (time.Duration, func(aws.Credentials), string) {
		life, code := decide(form)
		return life, nil, code
	})
}

// LetCallersAssume is LetAssume for a decision that depends on the caller.
func (s *Server) LetCallersAssume(decide Assume) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.assume = decide
}

// withToken is the action by which a token of an identity provider takes a role.
const withToken = "AssumeRoleWithWebIdentity"

// LetTokensAssume enables the action AssumeRoleWithWebIdentity. A request has no signature: the token
// in its form proves the caller. decide verifies the token, and returns what an Assume does.
func (s *Server) LetTokensAssume(decide func(form url.Values) (life time.Duration, given func(aws.Credentials), code string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = decide
}

// assumed answers the action AssumeRole. It returns an empty name if the action is not
// enabled.
func (s *Server) assumed(caller string, form url.Values) (name string, fields map[string]string) {
	s.mu.Lock()
	decide := s.assume
	s.mu.Unlock()
	if decide == nil {
		return "", nil
	}
	life, given, code := decide(caller, form)
	return s.opened("AssumeRole", form, life, given, code)
}

// byToken answers the action AssumeRoleWithWebIdentity. It returns an empty name if the request is for another
// action, or if the action is not enabled.
func (s *Server) byToken(form url.Values) (name string, fields map[string]string) {
	s.mu.Lock()
	decide := s.token
	s.mu.Unlock()
	if decide == nil || form.Get("Action") != withToken {
		return "", nil
	}
	life, given, code := decide(form)
	return s.opened(withToken, form, life, given, code)
}

// opened opens the session of a request, unless code is an error code of STS, and returns the answer.
func (s *Server) opened(action string, form url.Values, life time.Duration, given func(aws.Credentials), code string) (name string, fields map[string]string) {
	if code != "" {
		return "ErrorResponse", map[string]string{"Code": code, "Message": "refused"}
	}
	arn := strings.SplitN(form.Get("RoleArn"), ":", 6)
	if len(arn) != 6 {
		return "ErrorResponse", map[string]string{"Code": "ValidationError", "Message": "refused"}
	}
	role := arn[5][strings.LastIndexByte(arn[5], '/')+1:]
	until := s.now().Add(life)
	c := s.give(session(arn[1], arn[4], role, "AROA"+strings.ToUpper(hex.EncodeToString([]byte(role)))+"0000000000000000", form.Get("RoleSessionName")), until)
	if given != nil {
		given(c)
	}
	return action, map[string]string{"AccessKeyId": c.AccessKeyID, "SecretAccessKey": c.SecretAccessKey, "SessionToken": c.SessionToken,
		"Expiration": until.UTC().Format(time.RFC3339)}
}

// Asked returns the number of requests.
func (s *Server) Asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked++
	s.mu.Unlock()
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return
	}
	form, err := url.ParseQuery(string(body))
	if err != nil || len(body) == 0 {
		form = r.URL.Query()
	}
	if name, fields := s.byToken(form); name != "" {
		status := http.StatusOK
		if name == "ErrorResponse" {
			status = http.StatusForbidden
		}
		answer(w, r, status, name, fields)
		return
	}
	e, code := s.verify(r, body, call{service: "sts", region: regionOf(r.Host)})
	if code != "" {
		answer(w, r, http.StatusForbidden, "ErrorResponse", map[string]string{"Code": code, "Message": "refused"})
		return
	}
	switch action := form.Get("Action"); {
	case form.Get("Version") != "2011-06-15" || action == "":
		answer(w, r, http.StatusBadRequest, "ErrorResponse", map[string]string{"Code": "InvalidAction", "Message": "refused"})
	case action == "AssumeRole":
		name, fields := s.assumed(e.creds.AccessKeyID, form)
		switch name {
		case "":
			answer(w, r, http.StatusOK, action, map[string]string{"Done": action})
		case "ErrorResponse":
			answer(w, r, http.StatusForbidden, name, fields)
		default:
			answer(w, r, http.StatusOK, name, fields)
		}
	case action != "GetCallerIdentity":
		answer(w, r, http.StatusOK, action, map[string]string{"Done": action})
	default:
		answer(w, r, http.StatusOK, action, map[string]string{"Arn": e.who.ARN, "UserId": e.who.UserID, "Account": e.who.Account})
	}
}

// answer writes an answer: JSON if the request accepts it, as STS does, else XML.
func answer(w http.ResponseWriter, r *http.Request, status int, name string, fields map[string]string) {
	open, shut := "<"+name+`Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/">`+"\n  <"+name+"Result>", "</"+name+"Result>"
	if name == "ErrorResponse" {
		open, shut = `<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">`+"\n  <Error>", "</Error>"
		name = "Error"
	}
	if r.Header.Get("Accept") == "application/json" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(map[string]any{name + "Response": map[string]any{name + "Result": fields}})
		return
	}
	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(status)
	io.WriteString(w, open+"\n")
	credentials := fields["AccessKeyId"] != ""
	if credentials {
		io.WriteString(w, "    <Credentials>\n")
	}
	for _, k := range []string{"Code", "Message", "Done", "Arn", "UserId", "Account", "AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration"} {
		if v, ok := fields[k]; ok {
			fmt.Fprintf(w, "    <%s>%s</%s>\n", k, v, k)
		}
	}
	if credentials {
		io.WriteString(w, "    </Credentials>\n")
	}
	io.WriteString(w, "  "+shut+"\n  <ResponseMetadata>\n    <RequestId>01234567-89ab-cdef-0123-456789abcdef</RequestId>\n  </ResponseMetadata>\n</"+name+"Response>\n")
}

// call names the service and the region for which a request must be signed.
type call struct{ service, region string }

// regionOf returns the region in the name of a host of STS, such as
// sts.eu-central-1.amazonaws.com.
func regionOf(host string) string {
	_, rest, _ := strings.Cut(strings.ToLower(host), ".")
	region, _, _ := strings.Cut(rest, ".")
	return region
}

// Verify checks the signature of a request to any service, in its header or in its query,
// for the service's name in signatures and the region. It returns the caller's access key.
// If the signature or the key is absent, wrong or expired, it returns an error code of STS
// instead. S3 uses the same checks with other names of the codes.
func (s *Server) Verify(r *http.Request, body []byte, service, region string) (accessKeyID, code string) {
	e, code := s.verify(r, body, call{service, region})
	return e.creds.AccessKeyID, code
}

func (s *Server) verify(r *http.Request, body []byte, c call) (entry, string) {
	if r.URL.Query().Has("X-Amz-Signature") {
		return s.presigned(r, body, c)
	}
	return s.signed(r, body, c)
}

// signed checks a signature in the Authorization header. It returns an error code of STS
// if the signature is wrong.
func (s *Server) signed(r *http.Request, body []byte, c call) (entry, string) {
	auth := r.Header.Values("Authorization")
	if len(auth) != 1 {
		return entry{}, "MissingAuthenticationToken"
	}
	fields, ok := strings.CutPrefix(auth[0], "AWS4-HMAC-SHA256 ")
	part := map[string]string{}
	for f := range strings.SplitSeq(fields, ",") {
		k, v, _ := strings.Cut(strings.TrimSpace(f), "=")
		if _, twice := part[k]; twice {
			ok = false
		}
		part[k] = v
	}
	scope := strings.Split(part["Credential"], "/")
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if !ok || len(part) != 3 || len(scope) != 5 || err != nil || scope[1] != at.Format("20060102") || scope[4] != "aws4_request" {
		return entry{}, "IncompleteSignature"
	}
	e, code := s.entry(scope, c, at, skew)
	if code != "" {
		return entry{}, code
	}
	if r.Header.Get("X-Amz-Security-Token") != e.creds.SessionToken {
		return entry{}, "InvalidClientTokenId"
	}
	hash := digest(body)
	if c.service == "s3" { // an upload names the hash of its content, or that it has none
		named := r.Header.Get("X-Amz-Content-Sha256")
		if named != hash && named != unsigned && !strings.HasPrefix(named, "STREAMING-") {
			return entry{}, "SignatureDoesNotMatch"
		}
		hash = named
	}
	names := strings.Split(part["SignedHeaders"], ";")
	again, code := rebuild(r, body, names)
	if code != "" {
		return entry{}, code
	}
	if err := v4.NewSigner().SignHTTP(context.Background(), e.creds, again, hash, c.service, scope[2], at, c.escapes); err != nil {
		return entry{}, "InternalFailure"
	}
	if !hmac.Equal([]byte(again.Header.Get("Authorization")), []byte("AWS4-HMAC-SHA256 Credential="+part["Credential"]+
		", SignedHeaders="+part["SignedHeaders"]+", Signature="+part["Signature"])) {
		return entry{}, "SignatureDoesNotMatch"
	}
	return e, ""
}

// unsigned is the hash in the signature of a request whose content is not signed.
const unsigned = "UNSIGNED-PAYLOAD"

// escapes sets how the service's signatures contain the path: S3's have it as it is.
func (c call) escapes(o *v4.SignerOptions) { o.DisableURIPathEscaping = c.service == "s3" }

// presigned checks a signature in the query.
func (s *Server) presigned(r *http.Request, body []byte, c call) (entry, string) {
	q := r.URL.Query()
	scope := strings.Split(q.Get("X-Amz-Credential"), "/")
	at, err := time.Parse("20060102T150405Z", q.Get("X-Amz-Date"))
	if err != nil || len(scope) != 5 {
		return entry{}, "IncompleteSignature"
	}
	life, hash := skew, digest(body)
	if c.service == "s3" { // the URL names its lifetime
		seconds, err := strconv.Atoi(q.Get("X-Amz-Expires"))
		if err != nil || seconds < 1 || seconds > 7*24*3600 {
			return entry{}, "IncompleteSignature"
		}
		life, hash = time.Duration(seconds)*time.Second, unsigned
	}
	e, code := s.entry(scope, c, at, life)
	if code != "" {
		return entry{}, code
	}
	again, code := rebuild(r, body, strings.Split(q.Get("X-Amz-SignedHeaders"), ";"))
	if code != "" {
		return entry{}, code
	}
	for _, k := range []string{"X-Amz-Signature", "X-Amz-Credential", "X-Amz-Date", "X-Amz-SignedHeaders", "X-Amz-Algorithm", "X-Amz-Security-Token"} {
		q.Del(k)
	}
	again.URL.RawQuery = q.Encode()
	uri, _, err := v4.NewSigner().PresignHTTP(context.Background(), e.creds, again, hash, c.service, scope[2], at, c.escapes)
	if err != nil {
		return entry{}, "InternalFailure"
	}
	u, err := url.Parse(uri)
	if err != nil || u.Query().Get("X-Amz-Signature") != r.URL.Query().Get("X-Amz-Signature") {
		return entry{}, "SignatureDoesNotMatch"
	}
	return e, ""
}

// entry returns the entry of the key in the scope. It refuses a request that is older
// than life or from the future, or that is for another service or region, and a key that
// has expired.
func (s *Server) entry(scope []string, c call, at time.Time, life time.Duration) (entry, string) {
	now := s.now()
	if d := now.Sub(at); d > life || d < -skew {
		return entry{}, "SignatureDoesNotMatch" // the code of STS for an expired signature
	}
	if scope[3] != c.service || scope[2] != c.region {
		return entry{}, "SignatureDoesNotMatch"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.known[scope[0]]
	switch {
	case !ok:
		return entry{}, "InvalidClientTokenId"
	case !e.expires.IsZero() && !now.Before(e.expires):
		return entry{}, "ExpiredToken"
	}
	return e, ""
}

// rebuild returns the request with only the signed headers. Like STS, it refuses a
// request with an unsigned x-amz- header.
func rebuild(r *http.Request, body []byte, names []string) (*http.Request, string) {
	again, err := http.NewRequest(r.Method, "https://"+r.Host+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return nil, "IncompleteSignature"
	}
	again.Host = r.Host
	again.ContentLength = 0
	signed := map[string]bool{}
	for _, n := range names {
		signed[n] = true
		switch n {
		case "host":
		case "content-length":
			again.ContentLength = r.ContentLength
		default:
			again.Header[http.CanonicalHeaderKey(n)] = r.Header.Values(n)
		}
	}
	for k := range r.Header {
		if l := strings.ToLower(k); strings.HasPrefix(l, "x-amz-") && !signed[l] {
			return nil, "SignatureDoesNotMatch"
		}
	}
	if !signed["host"] {
		return nil, "IncompleteSignature"
	}
	return again, ""
}

func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}
