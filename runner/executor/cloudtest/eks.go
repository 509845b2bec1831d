package cloudtest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// tokenLife is how long EKS takes a token.
const tokenLife = 15 * time.Minute

// EKS is Amazon EKS in one region, with one cluster's door. Its clusters are
// moto's, which gives them the address of nothing; it lets the one be where its
// door is. Whom a token is from, its door learns as EKS' authenticator does: it
// sends the request that the token is to STS.
type EKS struct {
	*Front
	region, cluster string
	sts             http.Handler
	moto            *httputil.ReverseProxy
	now             func() time.Time

	mu        sync.Mutex
	entries   map[string]string // access entries: a role's ARN to the user that it is
	status    string            // "": as moto says
	refuse    string            // code of an error; "": none
	described int
}

// NewEKS returns the region at that moto, and a door of the cluster of that
// name, which the test makes in moto.
func NewEKS(t testing.TB, region, cluster, moto string, sts http.Handler, now func() time.Time, api API) *EKS {
	at, err := url.Parse(moto)
	if err != nil {
		t.Fatal(err)
	}
	e := &EKS{region: region, cluster: cluster, sts: sts, now: now, entries: map[string]string{}}
	e.moto = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(at) }, ModifyResponse: e.amend} // the credential's scope tells moto service and region
	e.Front = newFront(t, api, e.Whois)
	return e
}

// Hosts are those of AWS in the region, and of EKS in others.
func (e *EKS) Hosts(others ...string) Hosts {
	h := Hosts{"sts." + e.region + ".amazonaws.com": e.sts}
	for _, region := range append(others, e.region) {
		h["eks."+region+".amazonaws.com"] = http.HandlerFunc(e.describe)
	}
	return h
}

// Enter makes an access entry for a role.
func (e *EKS) Enter(role, user string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.entries[role] = user
}

// Say has EKS give another state of the cluster, or refuse with a code.
func (e *EKS) Say(status, refuse string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.status, e.refuse = status, refuse
}

// Move opens another door of the cluster, and closes the one that was: the
// cluster was made anew under its name.
func (e *EKS) Move(t testing.TB) {
	old := e.Front
	e.Front = newFront(t, old.api, e.Whois)
	old.server.Close()
}

// Described returns how often EKS was asked for a cluster.
func (e *EKS) Described() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.described
}

func (e *EKS) describe(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	refuse := e.refuse
	if r.Method == http.MethodGet {
		e.described++
	}
	e.mu.Unlock()
	if refuse != "" {
		w.Header().Set("X-Amzn-Errortype", refuse)
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"message":"refused"}`)
		return
	}
	e.moto.ServeHTTP(w, r)
}

// amend says where the cluster is.
func (e *EKS) amend(resp *http.Response) error {
	if resp.StatusCode != http.StatusOK {
		return nil
	}
	var told map[string]map[string]any
	err := json.NewDecoder(resp.Body).Decode(&told)
	resp.Body.Close()
	if err != nil || told["cluster"] == nil {
		return fmt.Errorf("moto describes no cluster: %w", err)
	}
	c := told["cluster"]
	c["endpoint"] = e.URL()
	c["certificateAuthority"] = map[string]string{"data": base64.StdEncoding.EncodeToString(e.Authority())}
	e.mu.Lock()
	if e.status != "" {
		c["status"] = e.status
	}
	e.mu.Unlock()
	b, err := json.Marshal(told)
	if err != nil {
		return err
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	resp.Header.Set("Content-Length", strconv.Itoa(len(b)))
	return nil
}

// Whois returns the user whom the token is from, as EKS' authenticator finds
// out: it trusts nothing but STS' answer to a request that can ask nothing else,
// and that was signed for this cluster.
func (e *EKS) Whois(token string) (string, error) {
	encoded, ok := strings.CutPrefix(token, "k8s-aws-v1.")
	if !ok || len(token) > 4<<10 {
		return "", errors.New("no token of EKS")
	}
	text, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(string(text))
	if err != nil {
		return "", err
	}
	if u.Scheme != "https" || u.Host != "sts."+e.region+".amazonaws.com" || u.Path != "/" || u.User != nil || u.Fragment != "" {
		return "", fmt.Errorf("the token asks %s", u.Redacted())
	}
	if err := e.checkQuery(u.Query()); err != nil {
		return "", err
	}
	req, err := http.NewRequest(http.MethodGet, u.String(), nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("x-k8s-aws-id", e.cluster)
	req.Header.Set("Accept", "application/json")
	resp, err := e.Hosts().RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	var said struct {
		GetCallerIdentityResponse struct {
			GetCallerIdentityResult struct{ Arn string }
		}
	}
	if err := json.Unmarshal(body, &said); resp.StatusCode != http.StatusOK || err != nil {
		return "", fmt.Errorf("STS says %d, %s", resp.StatusCode, body)
	}
	role := roleOf(said.GetCallerIdentityResponse.GetCallerIdentityResult.Arn)
	e.mu.Lock()
	defer e.mu.Unlock()
	user, ok := e.entries[role]
	if !ok {
		return "", fmt.Errorf("no access entry for %s", role)
	}
	return user, nil
}

func (e *EKS) checkQuery(q url.Values) error {
	known := strings.Fields("action version x-amz-algorithm x-amz-credential x-amz-date x-amz-expires x-amz-security-token x-amz-signature x-amz-signedheaders")
	for name, values := range q {
		if len(values) != 1 || !slices.Contains(known, strings.ToLower(name)) {
			return fmt.Errorf("the token has the parameter %s, %d times", name, len(values))
		}
	}
	if q.Get("Action") != "GetCallerIdentity" {
		return fmt.Errorf("the token asks for %s", q.Get("Action"))
	}
	signed := strings.Split(q.Get("X-Amz-SignedHeaders"), ";")
	if !slices.Contains(signed, "x-k8s-aws-id") || !slices.Contains(signed, "host") {
		return fmt.Errorf("the token was signed with %s alone", signed)
	}
	if n, err := strconv.Atoi(q.Get("X-Amz-Expires")); err != nil || n < 0 || n > int(tokenLife/time.Second) {
		return fmt.Errorf("the token lasts %q s", q.Get("X-Amz-Expires"))
	}
	at, err := time.Parse("20060102T150405Z", q.Get("X-Amz-Date"))
	if age := e.now().Sub(at); err != nil || age >= tokenLife || age < -tokenLife {
		return fmt.Errorf("the token is %s old, %v", age, err)
	}
	return nil
}

// roleOf is the role of a session: its path is lost.
func roleOf(arn string) string {
	part := strings.SplitN(arn, ":", 6)
	if len(part) != 6 {
		return arn
	}
	name := strings.Split(part[5], "/")
	if part[2] != "sts" || len(name) != 3 || name[0] != "assumed-role" {
		return arn
	}
	return "arn:" + part[1] + ":iam::" + part[4] + ":role/" + name[1]
}
