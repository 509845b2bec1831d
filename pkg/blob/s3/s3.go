// Package s3 stores blobs as objects of one S3 bucket.
//
// A blob is one object, written with one request. S3 stores the object atomically, and all
// later requests get it. S3 keeps nothing of an interrupted request. S3 checks the SHA-256
// of every object before it stores the object. Get checks the SHA-256 before it returns any
// byte.
//
// The role needs s3:GetObject, s3:PutObject and s3:DeleteObject on the objects. It needs
// s3:ListBucket on the bucket; otherwise S3 answers "forbidden" for a missing object. With
// a KMS key it also needs kms:GenerateDataKey and kms:Decrypt. Revive needs s3:ListBucketVersions
// and s3:GetObjectVersion, too.
package s3

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/fairlead/fairlead/pkg/awsapi"
	"github.com/fairlead/fairlead/pkg/blob"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Options are the location and the encryption of the blobs.
type Options struct {
	// Bucket is the name of a general purpose bucket. A directory bucket is not suitable,
	// because it does not list its objects in order.
	Bucket string
	// Prefix is the start of all object keys: "" or a blob key followed by "/". An S3 key
	// has at most 1,024 bytes, so the prefix reduces the maximum length of a blob key.
	Prefix string
	// KMSKey is the id or ARN of the KMS key that encrypts the objects. If it is "", the
	// bucket's setting applies.
	KMSKey string
	// Copies is the name of another bucket that has copies of the blobs under the same keys; "": there is none. Only Revive
	// uses it, for blobs that Bucket never had.
	Copies string
	// PathStyle puts the bucket's name into the path of a request instead of the host name.
	// Servers other than AWS need it.
	PathStyle bool
}

// Store is a blob.Store. Safe for concurrent use.
type Store struct {
	client  *s3.Client
	options Options
}

var _ blob.Reviver = (*Store)(nil)

// attemptTimeout limits one attempt of one request. A connection of 5 Mbit/s transfers the
// largest blob within this time.
const attemptTimeout = 4 * time.Minute

// New returns the store that o describes. It sends no request.
func New(cfg aws.Config, o Options) (*Store, error) {
	if o.Bucket == "" {
		return nil, fairlead.Invalid(fairlead.CodeInvalidBucket, "the bucket's name is empty")
	}
	if o.Prefix != "" {
		if err := blob.CheckKey(strings.TrimSuffix(o.Prefix, "/")); err != nil || !strings.HasSuffix(o.Prefix, "/") {
			return nil, fairlead.Invalid(fairlead.CodeInvalidBlobPrefix, "%.200q cannot be the prefix of object keys: use a blob key followed by /", o.Prefix)
		}
	}
	return &Store{
		client:  s3.NewFromConfig(awsapi.Bound(cfg, attemptTimeout), func(s *s3.Options) { s.UsePathStyle = o.PathStyle }),
		options: o,
	}, nil
}

// object returns the key of the blob's object.
func (s *Store) object(key string) (string, error) {
	if err := blob.CheckKey(key); err != nil {
		return "", err
	}
	if len(s.options.Prefix)+len(key) > blob.MaxKey {
		return "", fairlead.Invalid(fairlead.CodeInvalidBlobKey, "the blob key has %d bytes: with the prefix, an object key would exceed %d", len(key), blob.MaxKey)
	}
	return s.options.Prefix + key, nil
}

// Put implements blob.Store.
func (s *Store) Put(ctx context.Context, key string, data []byte) error {
	object, err := s.object(key)
	if err := cmp.Or(err, ctx.Err()); err != nil {
		return err
	}
	if len(data) > blob.MaxSize {
		return blob.ErrTooLarge
	}
	in := &s3.PutObjectInput{
		Bucket: &s.options.Bucket, Key: &object, Body: bytes.NewReader(data),
		ChecksumAlgorithm: types.ChecksumAlgorithmSha256, ContentType: aws.String("application/octet-stream"),
	}
	if s.options.KMSKey != "" {
		in.ServerSideEncryption = types.ServerSideEncryptionAwsKms
		in.SSEKMSKeyId = &s.options.KMSKey
		in.BucketKeyEnabled = aws.Bool(true) // otherwise each object needs a request to KMS, which costs money
	}
	_, err = s.client.PutObject(ctx, in)
	return classify(ctx, "put blob "+key, err)
}

// maxReads is the maximum number of times that Get reads a blob if the received bytes are
// incomplete or changed. The SDK does not repeat a request after its response has begun.
const maxReads = 3

// Get implements blob.Store.
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	object, err := s.object(key)
	if err := cmp.Or(err, ctx.Err()); err != nil {
		return nil, err
	}
	for read := 1; ; read++ {
		data, again, err := s.get(ctx, object)
		if err == nil {
			return data, nil
		}
		if isMissing(err) {
			return nil, blob.ErrNotFound
		}
		if !again || read == maxReads || ctx.Err() != nil {
			if again && ctx.Err() == nil {
				return nil, &fairlead.Error{
					Kind: fairlead.KindUnavailable, Code: fairlead.CodeBlobBrokenOff,
					Message: fmt.Sprintf("get blob %s: its bytes were incomplete or changed, %d times", key, read),
					Hint:    "Repeat the request in a while.",
					Err:     err,
				}
			}
			return nil, classify(ctx, "get blob "+key, err)
		}
	}
}

// get reads the object once. If it fails, the result again reports whether the response had
// begun. In this case a repeat may return the complete object.
func (s *Store) get(ctx context.Context, object string) (_ []byte, again bool, err error) {
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{
		Bucket: &s.options.Bucket, Key: &object, ChecksumMode: types.ChecksumModeEnabled,
	})
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = out.Body.Close() }() // the error has no effect: get has read all bytes, or returns none
	size := aws.ToInt64(out.ContentLength)
	if size > blob.MaxSize {
		return nil, false, fmt.Errorf("object of %d bytes: %w", size, blob.ErrTooLarge)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(out.Body, data); err != nil {
		return nil, true, err
	}
	// The SDK compares the checksum at the end of the body. An additional read is necessary
	// to reach the end.
	if n, err := io.Copy(io.Discard, out.Body); err != nil || n > 0 {
		return nil, true, cmp.Or(err, fmt.Errorf("the object has %d bytes more than its Content-Length", n))
	}
	return data, false, nil
}

// Delete implements blob.Store. In a bucket with versions, the bytes stay until the
// bucket's lifecycle removes them.
func (s *Store) Delete(ctx context.Context, key string) error {
	object, err := s.object(key)
	if err := cmp.Or(err, ctx.Err()); err != nil {
		return err
	}
	_, err = s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.options.Bucket, Key: &object})
	if isMissing(err) {
		return nil
	}
	return classify(ctx, "delete blob "+key, err)
}

// Revive implements blob.Reviver. It needs a bucket with versions: it makes the last version of the object current again. It copies
// that version and does not remove the mark of the deletion, so that S3 replicates the result.
func (s *Store) Revive(ctx context.Context, key string) (bool, error) {
	object, err := s.object(key)
	if err := cmp.Or(err, ctx.Err()); err != nil {
		return false, err
	}
	_, err = s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.options.Bucket, Key: &object})
	if err == nil {
		return false, nil
	}
	if _, missing := errors.AsType[*types.NotFound](err); !missing {
		return false, classify(ctx, "look for blob "+key, err)
	}
	for _, bucket := range []string{s.options.Bucket, s.options.Copies} {
		if bucket == "" {
			continue
		}
		version, err := s.lastVersion(ctx, bucket, object)
		if err != nil {
			return false, classify(ctx, "look for versions of blob "+key+" in bucket "+bucket, err)
		}
		if version == "" {
			continue
		}
		source := (&url.URL{Path: bucket + "/" + object}).EscapedPath() + "?versionId=" + url.QueryEscape(version)
		in := &s3.CopyObjectInput{Bucket: &s.options.Bucket, Key: &object, CopySource: &source, ChecksumAlgorithm: types.ChecksumAlgorithmSha256}
		if s.options.KMSKey != "" {
			in.ServerSideEncryption, in.SSEKMSKeyId, in.BucketKeyEnabled = types.ServerSideEncryptionAwsKms, &s.options.KMSKey, aws.Bool(true)
		}
		_, err = s.client.CopyObject(ctx, in)
		return err == nil, classify(ctx, "revive blob "+key, err)
	}
	return false, blob.ErrNotFound
}

// lastVersion returns the id of the object's last version with bytes; "": there is none. S3 lists versions by key, the newest
// first.
func (s *Store) lastVersion(ctx context.Context, bucket, object string) (string, error) {
	pages := s3.NewListObjectVersionsPaginator(s.client, &s3.ListObjectVersionsInput{Bucket: &bucket, Prefix: &object})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return "", err
		}
		for _, v := range page.Versions {
			if aws.ToString(v.Key) != object { // the versions of the object itself come first
				return "", nil
			}
			return aws.ToString(v.VersionId), nil
		}
	}
	return "", nil
}

// List implements blob.Store. S3 returns at most 1,000 keys in a response.
func (s *Store) List(ctx context.Context, prefix string) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !beginsKey(prefix) {
		return nil, nil
	}
	pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{
		Bucket: &s.options.Bucket, Prefix: aws.String(s.options.Prefix + prefix),
	})
	var keys []string
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, classify(ctx, "list blobs", err)
		}
		for _, o := range page.Contents {
			// Omit objects whose key is not a blob key. A Store did not write them. An
			// example is the empty object that the console creates for a folder.
			if key := strings.TrimPrefix(aws.ToString(o.Key), s.options.Prefix); blob.CheckKey(key) == nil {
				keys = append(keys, key)
			}
		}
	}
	return keys, nil
}

// beginsKey reports whether a blob key can have the prefix. S3 refuses some of the prefixes
// that no blob key can have.
func beginsKey(prefix string) bool {
	if prefix == "" {
		return true
	}
	whole := prefix
	if strings.HasSuffix(prefix, "/") || strings.HasSuffix(prefix, ".") { // for example "a/", or "." as the prefix of ".x"
		if len(prefix) == blob.MaxKey {
			return false
		}
		whole += "x"
	}
	return blob.CheckKey(whole) == nil
}

func isMissing(err error) bool {
	_, ok := errors.AsType[*types.NoSuchKey](err)
	return ok
}

func classify(ctx context.Context, op string, err error) error {
	if _, ok := errors.AsType[*types.NoSuchBucket](err); ok || awsapi.Code(err) == "NoSuchBucket" {
		return &fairlead.Error{
			Kind: fairlead.KindInternal, Code: fairlead.CodeBucketMissing,
			Message: op + ": the bucket does not exist",
			Hint:    "Check the bucket's name, and the account and region.",
			Err:     err,
		}
	}
	// A response with status 503 and no S3 error code is from a proxy or a router.
	if r, ok := errors.AsType[*awshttp.ResponseError](err); ok && r.HTTPStatusCode() == http.StatusServiceUnavailable && ctx.Err() == nil {
		return &fairlead.Error{
			Kind: fairlead.KindUnavailable, Code: fairlead.CodeAWSUnavailable,
			Message: op + ": S3 is busy", Hint: "Repeat the request in a while.", Err: err,
		}
	}
	return awsapi.Classify(ctx, "S3", op, err)
}
