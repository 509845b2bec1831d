// Package s3 is a ledger in a bucket of the customer. An entry is one object, which a conditional write creates.
//
// The role needs s3:GetObject, s3:PutObject and s3:DeleteObject on the objects, and s3:ListBucket on the bucket.
package s3

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/ledger"
)

// Options are the location of a ledger.
type Options struct {
	Bucket    string
	Prefix    string // "" or a prefix that ends with a slash
	PathStyle bool   // puts the bucket's name into the path of requests; servers other than AWS need it
}

// Ledger implements ledger.Ledger.
type Ledger struct {
	client *s3.Client
	o      Options
}

// New returns the ledger that o describes. It sends no request.
func New(cfg aws.Config, o Options) *Ledger {
	return &Ledger{s3.NewFromConfig(cfg, func(c *s3.Options) { c.UsePathStyle = o.PathStyle }), o}
}

// attempts bounds the requests of one Create that S3 refuses because another write of the key is under way.
const attempts = 5

// Create implements ledger.Ledger. The SDK must not repeat the request: the answer to the second one would be that the entry exists,
// and the caller would take its own entry for that of another.
func (l *Ledger) Create(ctx context.Context, key string, value []byte) error {
	if err := ledger.Check(key, value); err != nil {
		return err
	}
	once := func(o *s3.Options) { o.RetryMaxAttempts = 1 }
	var err error
	for range attempts {
		_, err = l.client.PutObject(ctx, &s3.PutObjectInput{Bucket: &l.o.Bucket, Key: aws.String(l.o.Prefix + key), Body: bytes.NewReader(value), IfNoneMatch: aws.String("*")}, once)
		switch status(err) {
		case http.StatusPreconditionFailed:
			return fmt.Errorf("%s: %w", key, ledger.ErrExists)
		case http.StatusConflict, http.StatusServiceUnavailable: // S3 states that it did not store the object
			continue
		}
		break
	}
	if err != nil {
		return fmt.Errorf("create an entry of the ledger: %w", err)
	}
	return nil
}

// status returns the status of the answer to a failed request; 0: there was no answer.
func status(err error) int {
	if e, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		return e.HTTPStatusCode()
	}
	return 0
}

// Keys implements ledger.Ledger.
func (l *Ledger) Keys(ctx context.Context, prefix string) ([]string, error) {
	var keys []string
	pages := s3.NewListObjectsV2Paginator(l.client, &s3.ListObjectsV2Input{Bucket: &l.o.Bucket, Prefix: aws.String(l.o.Prefix + prefix)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the ledger: %w", err)
		}
		for _, o := range page.Contents {
			keys = append(keys, strings.TrimPrefix(aws.ToString(o.Key), l.o.Prefix)) // S3 sorts them by their bytes
		}
	}
	return keys, nil
}

// List implements ledger.Ledger.
func (l *Ledger) List(ctx context.Context, prefix string) ([]ledger.Entry, error) {
	keys, err := l.Keys(ctx, prefix)
	if err != nil {
		return nil, err
	}
	var all []ledger.Entry
	for _, key := range keys {
		value, err := l.get(ctx, key)
		if status(err) == http.StatusNotFound { // removed meanwhile
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the ledger: %w", err)
		}
		all = append(all, ledger.Entry{Key: key, Value: value})
	}
	return all, nil
}

func (l *Ledger) get(ctx context.Context, key string) ([]byte, error) {
	out, err := l.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &l.o.Bucket, Key: aws.String(l.o.Prefix + key)})
	if err != nil {
		return nil, err
	}
	defer out.Body.Close()
	value, err := io.ReadAll(io.LimitReader(out.Body, ledger.MaxValue+1))
	if err == nil && len(value) > ledger.MaxValue {
		err = fmt.Errorf("%s is no entry: it is too large", key)
	}
	return value, err
}

// Remove implements ledger.Ledger.
func (l *Ledger) Remove(ctx context.Context, key string) error {
	if err := ledger.Check(key, nil); err != nil {
		return err
	}
	if _, err := l.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &l.o.Bucket, Key: aws.String(l.o.Prefix + key)}); err != nil {
		return fmt.Errorf("remove an entry of the ledger: %w", err)
	}
	return nil
}

// Open returns the ledger at a location in a bucket, with the credentials that this process finds. region "" is that of the process.
// It sends no request.
func Open(ctx context.Context, at runnerspec.Ledger, region string) (ledger.Ledger, error) {
	cfg, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("find the credentials of this process: %w", err)
	}
	cfg.Region = cmp.Or(region, cfg.Region)
	prefix := at.Prefix
	if prefix != "" {
		prefix += "/"
	}
	return New(cfg, Options{Bucket: at.Name, Prefix: prefix}), nil
}
