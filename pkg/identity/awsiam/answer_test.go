package awsiam_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
)

const stsNamespace = "https://sts.amazonaws.com/doc/2011-06-15/"

// result returns an answer to GetCallerIdentity with the elements.
func result(elements string) string {
	return `<GetCallerIdentityResponse xmlns="` + stsNamespace + `"><GetCallerIdentityResult>` + elements +
		`</GetCallerIdentityResult><ResponseMetadata><RequestId>r-1</RequestId></ResponseMetadata></GetCallerIdentityResponse>`
}

// who returns an answer about a principal.
func who(arn, userID, account string) string {
	return result("<Arn>" + arn + "</Arn><UserId>" + userID + "</UserId><Account>" + account + "</Account>")
}

const (
	goodARN  = "arn:aws:sts::123456789012:assumed-role/shop-runner/task-1"
	goodUser = roleID + ":task-1"
)

// good returns a valid answer.
func good() string { return who(goodARN, goodUser, account) }

// answers is a function as a RoundTripper.
type answers func(*http.Request) (*http.Response, error)

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// reply answers every request with the same response.
func reply(status int, contentType, body string) answers {
	return func(r *http.Request) (*http.Response, error) {
		h := http.Header{}
		if contentType != "" {
			h.Set("Content-Type", contentType)
		}
		return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
}

// aProof returns a well-formed proof. The answers of these tests do not depend on its
// signature.
func aProof() awsiam.Proof {
	return awsiam.Proof{Host: frankfurt.Host, AccessKeyID: "ASIAEXAMPLEEXAMPLE01", SessionToken: strings.Repeat("A", 200),
		Date: epoch.Format(awsiam.DateFormat), Signature: strings.Repeat("0a", 32)}
}

func verify(t *testing.T, via http.RoundTripper) (awsiam.Identity, error) {
	t.Helper()
	return awsiam.NewVerifier(via, now, awsiam.Options{}).Verify(t.Context(), aProof(), challenge)
}

func TestOnlyAnswersOfSTSAreAccepted(t *testing.T) {
	const accepted = ""
	for name, row := range map[string]struct {
		status      int
		contentType string
		body        string
		want        string
	}{
		"the answer of STS":                       {200, "text/xml", good(), accepted},
		"the same with a declaration and a line":  {200, "text/xml;charset=UTF-8", `<?xml version="1.0" encoding="UTF-8"?>` + "\n" + good() + "\n", accepted},
		"additional elements":                     {200, "text/xml", result("<Arn>" + goodARN + "</Arn><UserId>" + goodUser + "</UserId><Account>" + account + "</Account><New><Account>999999999999</Account></New>"), accepted},
		"escaped text":                            {200, "text/xml", who("arn:aws:sts::123456789012:assumed-role/shop&#45;runner/task-1", goodUser, account), accepted},
		"a page of a proxy instead of STS":        {200, "text/html", "<html>Please log in</html>", "unavailable"},
		"an HTML page with a valid answer":        {200, "text/html", good(), "unavailable"},
		"an answer in JSON":                       {200, "application/json", `{"GetCallerIdentityResponse":{"GetCallerIdentityResult":{"Account":"123456789012"}}}`, "unavailable"},
		"JSON with the content type of XML":       {200, "text/xml", `{"Arn":"` + goodARN + `"}`, "unavailable"},
		"XML with the content type of JSON":       {200, "application/json", good(), "unavailable"},
		"no content type":                         {200, "", good(), "unavailable"},
		"another charset":                         {200, "text/xml; charset=utf-7", good(), "unavailable"},
		"another charset in the XML declaration":  {200, "text/xml", `<?xml version="1.0" encoding="UTF-16"?>` + good(), "unavailable"},
		"a redirect to an attacker":               {302, "text/xml", good(), "unavailable"},
		"a permanent redirect":                    {308, "text/xml", good(), "unavailable"},
		"another 2xx status":                      {201, "text/xml", good(), "unavailable"},
		"part of an answer":                       {206, "text/xml", good(), "unavailable"},
		"an error status with a valid answer":     {403, "text/xml", good(), "unavailable"},
		"an internal error of STS":                {500, "text/xml", good(), "unavailable"},
		"STS limits the rate":                     {429, "text/xml", "", "unavailable"},
		"STS limits the rate in its older form":   {400, "text/xml", stsError("Throttling"), "unavailable"},
		"unknown credentials":                     {403, "text/xml", stsError("InvalidClientTokenId"), "signature"},
		"expired credentials":                     {403, "text/xml", stsError("ExpiredToken"), "signature"},
		"a proxy forbids the request":             {403, "text/html", "<html>Forbidden</html>", "unavailable"},
		"an empty answer":                         {200, "text/xml", "", "unavailable"},
		"an answer that is cut off":               {200, "text/xml", good()[:200], "unavailable"},
		"a huge answer":                           {200, "text/xml", good() + strings.Repeat(" ", 16<<10), "unavailable"},
		"the answer of another action":            {200, "text/xml", strings.ReplaceAll(good(), "GetCallerIdentity", "AssumeRoleWithWebIdentity"), "unavailable"},
		"an answer within that of another action": {200, "text/xml", `<AssumeRoleResponse xmlns="` + stsNamespace + `">` + good() + `</AssumeRoleResponse>`, "unavailable"},
		"an answer without the namespace":         {200, "text/xml", strings.Replace(good(), ` xmlns="`+stsNamespace+`"`, "", 1), "unavailable"},
		"an answer in another namespace":          {200, "text/xml", strings.Replace(good(), "sts.amazonaws", "sts.evil", 1), "unavailable"},
		"an element of another namespace":         {200, "text/xml", strings.Replace(good(), "<Arn>", `<Arn xmlns="x">`, 1), "unavailable"},
		"two answers":                             {200, "text/xml", good() + good(), "unavailable"},
		"two results":                             {200, "text/xml", strings.Replace(good(), "<ResponseMetadata>", "<GetCallerIdentityResult></GetCallerIdentityResult><ResponseMetadata>", 1), "unavailable"},
		"a result in two parts":                   {200, "text/xml", strings.Replace(good(), "<UserId>", "</GetCallerIdentityResult><GetCallerIdentityResult><UserId>", 1), "unavailable"},
		"two accounts":                            {200, "text/xml", strings.Replace(good(), "<Account>", "<Account>999999999999</Account><Account>", 1), "unavailable"},
		"two roles":                               {200, "text/xml", strings.Replace(good(), "<UserId>", "<UserId>AROAADMINADMINADMIN1:task-1</UserId><UserId>", 1), "unavailable"},
		"text after the answer":                   {200, "text/xml", good() + "x", "unavailable"},
		"text before the answer":                  {200, "text/xml", "x" + good(), "unavailable"},
		"a comment in the middle of a text":       {200, "text/xml", strings.Replace(good(), account, "123456<!-- -->789012", 1), "unavailable"},
		"a comment after the answer":              {200, "text/xml", good() + "<!-- -->", "unavailable"},
		"a document type":                         {200, "text/xml", `<!DOCTYPE x [<!ENTITY a "` + account + `">]>` + good(), "unavailable"},
		"an unknown entity":                       {200, "text/xml", who(goodARN, goodUser, "&a;"), "unavailable"},
		"a processing instruction":                {200, "text/xml", strings.Replace(good(), "<Arn>", "<?x y?><Arn>", 1), "unavailable"},
		"an element within a text":                {200, "text/xml", strings.Replace(good(), account, "123456789<b/>012", 1), "unavailable"},
		"an element that is not closed":           {200, "text/xml", strings.Replace(good(), "</Arn>", "", 1), "unavailable"},
		"no account":                              {200, "text/xml", strings.Replace(good(), "Account>", "Konto>", 2), "unavailable"},
		"deep nesting":                            {200, "text/xml", result(strings.Repeat("<a>", 1000)), "unavailable"},
		"a control character":                     {200, "text/xml", strings.Replace(good(), "task-1", "task\x00", 1), "unavailable"},
		"bytes that are not UTF-8":                {200, "text/xml", strings.Replace(good(), "task-1", "task\xff", 1), "unavailable"},
		"a session name with slashes":             {200, "text/xml", who(goodARN+"/x", goodUser+"/x", account), "unavailable"},
		"a session name with another role in it":  {200, "text/xml", who("arn:aws:sts::123456789012:assumed-role/x/shop-runner/task-1", goodUser, account), "unavailable"},
		"a session name with a colon":             {200, "text/xml", who(goodARN+":x", goodUser+":x", account), "unavailable"},
		"an ARN and a user id of two sessions":    {200, "text/xml", who(goodARN, roleID+":task-2", account), "unavailable"},
		"an ARN of another account":               {200, "text/xml", who(goodARN, goodUser, "999999999999"), "unavailable"},
		"an ARN of another partition":             {200, "text/xml", who(strings.Replace(goodARN, "aws", "aws-cn", 1), goodUser, account), "unavailable"},
		"an ARN with a region":                    {200, "text/xml", who(strings.Replace(goodARN, "sts::", "sts:eu-central-1:", 1), goodUser, account), "unavailable"},
		"an account of thirteen digits":           {200, "text/xml", who(strings.Replace(goodARN, account, account+"3", 1), goodUser, account+"3"), "unavailable"},
		"an account with non-ASCII digits":        {200, "text/xml", who(strings.Replace(goodARN, "1234", "\u0661234", 1), goodUser, strings.Replace(account, "1234", "\u0661234", 1)), "unavailable"},
		"a role without a session":                {200, "text/xml", who("arn:aws:sts::123456789012:assumed-role/shop-runner", roleID, account), "unavailable"},
		"a role without a name":                   {200, "text/xml", who("arn:aws:sts::123456789012:assumed-role//task-1", goodUser, account), "unavailable"},
		"a user's id on a role's ARN":             {200, "text/xml", who(goodARN, "AIDAEXAMPLEEXAMPLE001:task-1", account), "unavailable"},
		"a space around the account":              {200, "text/xml", who(goodARN, goodUser, " "+account), "unavailable"},
		"a user":                                  {200, "text/xml", who("arn:aws:iam::123456789012:user/x", "AIDAEXAMPLEEXAMPLE001", account), "not-a-role"},
		"a user whose path looks like a role":     {200, "text/xml", who("arn:aws:iam::123456789012:user/assumed-role/shop-runner/task-1", "AIDAEXAMPLEEXAMPLE001", account), "not-a-role"},
		"a federated user named like the role":    {200, "text/xml", who("arn:aws:sts::123456789012:federated-user/shop-runner", "123456789012:shop-runner", account), "not-a-role"},
		"the root of the account":                 {200, "text/xml", who("arn:aws:iam::123456789012:root", "123456789012", account), "not-a-role"},
		"a role's own ARN instead of a session's": {200, "text/xml", who("arn:aws:iam::123456789012:role/shop-runner", goodUser, account), "not-a-role"},
		"an ARN of a service other than STS":      {200, "text/xml", who(strings.Replace(goodARN, ":sts:", ":s3:", 1), goodUser, account), "not-a-role"},
	} {
		t.Run(name, func(t *testing.T) {
			id, err := verify(t, reply(row.status, row.contentType, row.body))
			if got := reason(err); got != row.want {
				t.Errorf("the reason is %q, want %q (%v)", got, row.want, err)
			}
			want := awsiam.Identity{}
			if row.want == accepted {
				want = awsiam.Identity{Partition: "aws", Account: account, RoleID: roleID, Role: role, Session: "task-1"}
			}
			if id != want {
				t.Errorf("the identity is %+v, want %+v", id, want)
			}
		})
	}
}

func stsError(code string) string {
	return `<ErrorResponse xmlns="` + stsNamespace + `"><Error><Type>Sender</Type><Code>` + code + `</Code><Message>m</Message></Error><RequestId>r</RequestId></ErrorResponse>`
}

func TestTwoContentTypesAreRefused(t *testing.T) {
	_, err := verify(t, answers(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/xml", "application/json"}},
			Body: io.NopCloser(strings.NewReader(good()))}, nil
	}))
	if reason(err) != "unavailable" {
		t.Errorf("got %v", err)
	}
}

// It uses a real connection.
func TestARedirectIsNotFollowed(t *testing.T) {
	var paths []string
	via := reach(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.Method+" "+r.Host+r.URL.Path)
		http.Redirect(w, r, "https://evil.example/answer", http.StatusTemporaryRedirect)
	}))
	if _, err := verify(t, via); reason(err) != "unavailable" {
		t.Errorf("got %v", err)
	}
	if len(paths) != 1 || paths[0] != "POST sts.eu-central-1.amazonaws.com/" {
		t.Errorf("the requests are %q, want one to STS", paths)
	}
}

// A small compressed answer could expand without end. The verifier does not ask for
// compression, and refuses a compressed answer.
func TestACompressedAnswerIsRefused(t *testing.T) {
	via := reach(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/xml")
		w.Header().Set("Content-Encoding", "gzip")
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		io.WriteString(z, good())
		z.Close()
		w.Write(b.Bytes())
	}))
	if _, err := verify(t, via); reason(err) != "unavailable" {
		t.Errorf("got %v", err)
	}
}

func TestAnEndlessAnswerIsRefused(t *testing.T) {
	var sent int
	via := reach(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/xml")
		for chunk := bytes.Repeat([]byte(" "), 4096); r.Context().Err() == nil; sent += len(chunk) {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	if _, err := verify(t, via); reason(err) != "unavailable" {
		t.Errorf("got %v", err)
	}
}

func TestTheTimeoutIncludesTheWaitForATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := answers(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		began := time.Now()
		v := awsiam.NewVerifier(silent, now, awsiam.Options{Timeout: 3 * time.Second, Concurrent: 1})
		done := make(chan error)
		for range 3 { // one request is sent; the other two wait for their turn until the timeout
			go func() {
				_, err := v.Verify(context.Background(), aProof(), challenge)
				done <- err
			}()
		}
		for range 3 {
			if err := <-done; fairlead.KindOf(err) != fairlead.KindUnavailable || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		}
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("the verifications took %s, want 3 s", d)
		}
	})
}

func TestConcurrentRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var under, most int
		release, enter := make(chan struct{}), make(chan int, 1)
		enter <- 0
		via := answers(func(r *http.Request) (*http.Response, error) {
			under = <-enter + 1
			most = max(most, under)
			enter <- under
			<-release
			enter <- <-enter - 1
			return reply(200, "text/xml", good())(r)
		})
		v := awsiam.NewVerifier(via, now, awsiam.Options{Concurrent: 2})
		done := make(chan error)
		for range 5 {
			go func() {
				_, err := v.Verify(context.Background(), aProof(), challenge)
				done <- err
			}()
		}
		synctest.Wait()
		close(release)
		for range 5 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if most != 2 {
			t.Errorf("%d requests were sent at the same time, want 2", most)
		}
	})
}

// For every answer of STS, or of a server in its place: no panic, and an identity only if
// the answer is complete and consistent.
func FuzzAnswer(f *testing.F) {
	f.Add("text/xml", good())
	f.Add("text/xml; charset=utf-8", `<?xml version="1.0"?>`+good())
	f.Add("text/xml", stsError("ExpiredToken"))
	f.Add("application/json", `{"Arn":"x"}`)
	f.Add("text/xml", who("arn:aws:iam::123456789012:user/x", "AIDAEXAMPLEEXAMPLE001", account))
	f.Add("text/xml", strings.Replace(good(), account, "123456<!-- -->789012", 1))
	f.Fuzz(func(t *testing.T, contentType, body string) {
		for _, status := range []int{200, 403} {
			id, err := awsiam.NewVerifier(reply(status, contentType, body), now, awsiam.Options{}).Verify(t.Context(), aProof(), challenge)
			if err != nil {
				if k := fairlead.KindOf(err); k != fairlead.KindUnavailable && k != fairlead.KindUnauthenticated {
					t.Errorf("%s: %v", k, err)
				}
				if id != (awsiam.Identity{}) {
					t.Errorf("an error together with the identity %+v", id)
				}
				continue
			}
			rule, err := awsiam.ParseTrust(id.RoleARN(), id.RoleID, time.Time{})
			if err != nil {
				t.Fatalf("no trust can name %+v: %v", id, err)
			}
			if _, err := rule.Match(id, epoch); err != nil {
				t.Fatalf("the trust in %+v does not match it: %v", id, err)
			}
			if status != 200 || !strings.Contains(strings.ToLower(contentType), "text/xml") {
				t.Fatalf("status %d with content type %q gave %+v", status, contentType, id)
			}
		}
	})
}
