package codebuild

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/runner/plugin"
)

// unsignedPayload is what a signature for S3 has in place of the hash of a body that TLS protects.
const unsignedPayload = "UNSIGNED-PAYLOAD"

// maxAnswer limits an answer in JSON or XML. A page of CloudWatch Logs has up to 1 MiB of text.
const maxAnswer = 8 << 20

// callTimeout bounds one request without a large body.
const callTimeout = 20 * time.Second

// caller makes signed requests to AWS.
type caller struct {
	Config
	signer *v4.Signer
}

func newCaller(cfg Config) caller {
	return caller{cfg, v4.NewSigner()}
}

func (c caller) credentials() aws.Credentials {
	a := c.Access
	return aws.Credentials{AccessKeyID: a.AccessKeyID, SecretAccessKey: a.SecretAccessKey, SessionToken: a.SessionToken}
}

// host returns the host name of a service in the region of the access.
func (c caller) host(service string) string {
	suffix := "amazonaws.com"
	if strings.HasPrefix(c.Access.Region, "cn-") {
		suffix += ".cn"
	}
	return service + "." + c.Access.Region + "." + suffix
}

// refusal is an error that a service of AWS returned.
type refusal struct {
	status        int
	code, message string
}

func (r *refusal) Error() string {
	return strings.TrimSuffix(fmt.Sprintf("%s (%d): %s", r.code, r.status, r.message), ": ")
}

// passing reports whether a repetition of the request may succeed.
func passing(err error) bool {
	r, ok := errors.AsType[*refusal](err)
	return !ok || r.status >= 500 || r.status == http.StatusTooManyRequests || throttled(r.code)
}

func throttled(code string) bool {
	switch code {
	case "ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded", "SlowDown", "ServiceUnavailable":
		return true
	}
	return false
}

func (c caller) repeat(ctx context.Context, f func(context.Context) error) error {
	return retry.Run(ctx, retry.Policy{First: 500 * time.Millisecond, Longest: 10 * time.Second, Within: c.Within, Random: c.Random, Passing: passing}, f)
}

// codebuild calls an operation of CodeBuild. out may be nil.
func (c caller) codebuild(ctx context.Context, operation string, in, out any) error {
	return c.call(ctx, "codebuild", "CodeBuild_20161006."+operation, in, out)
}

// logs calls an operation of CloudWatch Logs.
func (c caller) logs(ctx context.Context, operation string, in, out any) error {
	return c.call(ctx, "logs", "Logs_20140328."+operation, in, out)
}

// call calls an operation of a service with the protocol JSON 1.1.
func (c caller) call(ctx context.Context, service, target string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode %s: %w", target, err)
	}
	return c.repeat(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+c.host(service)+"/", bytes.NewReader(body))
		if err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
		req.Header.Set("Content-Type", "application/x-amz-json-1.1")
		req.Header.Set("X-Amz-Target", target)
		sum := sha256.Sum256(body)
		if err := c.signer.SignHTTP(ctx, c.credentials(), req, hex.EncodeToString(sum[:]), service, c.Access.Region, c.Now()); err != nil {
			return fmt.Errorf("sign %s: %w", target, err)
		}
		answer, err := c.do(req)
		if err != nil || out == nil {
			return err
		}
		if err := json.Unmarshal(answer, out); err != nil {
			return fmt.Errorf("read the answer to %s: %w", target, err)
		}
		return nil
	})
}

// do sends a request and returns the answer, which must be small.
func (c caller) do(req *http.Request) ([]byte, error) {
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, withoutQuery(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", req.URL.Host, err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, refused(resp.StatusCode, answer)
	}
	return answer, nil
}

// withoutQuery removes the query from the URL in an error, because it may have a signature.
func withoutQuery(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		if u, perr := url.Parse(e.URL); perr == nil {
			return fmt.Errorf("%s: %w", u.Host, e.Err)
		}
		return e.Err
	}
	return err
}

// refused reads the error in an answer: of JSON 1.1, or of S3's XML.
func refused(status int, answer []byte) *refusal {
	r := &refusal{status: status}
	var j struct {
		Type    string `json:"__type"`
		Message string `json:"message"`
		Upper   string `json:"Message"`
	}
	var x struct {
		Code, Message string
	}
	switch {
	case json.Unmarshal(answer, &j) == nil:
		r.code, r.message = j.Type[strings.LastIndexByte(j.Type, '#')+1:], j.Message+j.Upper
	case xml.Unmarshal(answer, &x) == nil:
		r.code, r.message = x.Code, x.Message
	}
	if r.code == "" {
		r.code = http.StatusText(status)
	}
	r.message = fairlead.Clip(r.message, maxReason)
	return r
}

func (c caller) objectURL(key string) string {
	return "https://" + c.Access.Bucket + "." + c.host("s3") + "/" + key
}

func unescaped(o *v4.SignerOptions) { o.DisableURIPathEscaping = true } // as S3 requires it

// presign returns a URL that permits one method on one object, until the credentials expire.
func (c caller) presign(ctx context.Context, method, key string) (string, error) {
	now := c.Now()
	left := int(c.Access.ExpiresAt.Sub(now) / time.Second)
	if left <= 0 {
		return "", plugin.Errorf(fairlead.ReasonBuilderUnavailable, "the job's access to AWS CodeBuild has expired before the build started. Publish the app again")
	}
	req, err := http.NewRequestWithContext(ctx, method, c.objectURL(key)+"?X-Amz-Expires="+strconv.Itoa(left), nil)
	if err != nil {
		return "", fmt.Errorf("sign a URL: %w", err)
	}
	signed, _, err := c.signer.PresignHTTP(ctx, c.credentials(), req, unsignedPayload, "s3", c.Access.Region, now, unescaped)
	if err != nil {
		return "", fmt.Errorf("sign a URL: %w", err)
	}
	return signed, nil
}

func (c caller) object(ctx context.Context, method, key string, body io.Reader, size int64) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.objectURL(key), body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, key, err)
	}
	req.ContentLength = size
	req.Header.Set("X-Amz-Content-Sha256", unsignedPayload)
	if err := c.signer.SignHTTP(ctx, c.credentials(), req, unsignedPayload, "s3", c.Access.Region, c.Now(), unescaped); err != nil {
		return nil, fmt.Errorf("sign %s %s: %w", method, key, err)
	}
	return req, nil
}

// upload stores the whole file as an object.
func (c caller) upload(ctx context.Context, key string, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("upload %s: %w", key, err)
	}
	return c.repeat(ctx, func(ctx context.Context) error {
		req, err := c.object(ctx, http.MethodPut, key, io.NewSectionReader(f, 0, info.Size()), info.Size())
		if err != nil {
			return err
		}
		_, err = c.do(req)
		return err
	})
}

// put stores a small object.
func (c caller) put(ctx context.Context, key string, content []byte) error {
	return c.repeat(ctx, func(ctx context.Context) error {
		req, err := c.object(ctx, http.MethodPut, key, bytes.NewReader(content), int64(len(content)))
		if err == nil {
			_, err = c.do(req)
		}
		return err
	})
}

// get returns the content of a small object.
func (c caller) get(ctx context.Context, key string) (content string, err error) {
	body, err := c.download(ctx, key)
	if err != nil {
		return "", err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxAnswer))
	return string(text), err
}

// download returns the content of an object.
func (c caller) download(ctx context.Context, key string) (body io.ReadCloser, err error) {
	err = c.repeat(ctx, func(ctx context.Context) error {
		req, err := c.object(ctx, http.MethodGet, key, nil, 0)
		if err != nil {
			return err
		}
		resp, err := c.HTTP.Do(req)
		if err != nil {
			return withoutQuery(err)
		}
		if resp.StatusCode == http.StatusOK {
			body = resp.Body
			return nil
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		if err != nil {
			return fmt.Errorf("read the answer of S3: %w", err)
		}
		return refused(resp.StatusCode, answer)
	})
	return body, err
}

// remove removes an object. It succeeds if there is none.
func (c caller) remove(ctx context.Context, key string) error {
	return c.repeat(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		req, err := c.object(ctx, http.MethodDelete, key, nil, 0)
		if err != nil {
			return err
		}
		_, err = c.do(req)
		return err
	})
}

// noSlot reports whether CodeBuild started no build because too many run.
func noSlot(err error) bool {
	r, ok := errors.AsType[*refusal](err)
	return ok && r.code == "AccountLimitExceededException"
}

// failure returns an error with a reason for a call that failed.
func failure(what string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*plugin.Error](err); ok {
		return err
	}
	advice := "Check the network of the build runner, then publish the app again"
	if r, ok := errors.AsType[*refusal](err); ok {
		switch {
		case r.code == "ResourceNotFoundException":
			advice = "The project does not exist: deploy the control plane's stack with its build runner, then publish the app again"
		case noSlot(err):
			advice = "Too many builds run: raise the quota of concurrent builds of the control plane's account, or imageBuilds of its stack, or publish the app again later"
		case throttled(r.code), r.status == http.StatusTooManyRequests:
			advice = "AWS limits the requests of the control plane's account: publish the app again later"
		case strings.HasPrefix(r.code, "ExpiredToken"), r.code == "RequestExpired":
			advice = "The job's access to AWS has expired, because the build took longer than an hour: make the Dockerfile faster, then publish the app again"
		case strings.HasPrefix(r.code, "AccessDenied"), r.status == http.StatusForbidden:
			advice = "The builder role of the control plane's stack does not permit it: deploy the stack again, and look for a policy of the account's organization that denies it"
		case r.status >= 500:
			advice = "AWS has a fault: publish the app again later"
		default:
			advice = "Publish the app again; if it fails again, look for the request in the CloudTrail of the control plane's account"
		}
	}
	return &plugin.Error{Reason: fairlead.ReasonBuilderUnavailable, Message: fmt.Sprintf("cannot %s in AWS CodeBuild: %v. %s", what, err, advice), Err: err}
}
