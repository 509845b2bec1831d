// Package s3 keeps blobs as objects of one S3 bucket.
//
// A blob is one object, put in one request: S3 stores it whole or not at all,
// nothing of an interrupted request stays, and a request that follows sees it.
// Every object goes with a SHA-256 that S3 checks before it stores it, and
// comes with one that is checked before a caller sees a byte.
//
// The role needs s3:GetObject, s3:PutObject and s3:DeleteObject on the objects
// and s3:ListBucket on the bucket (without which S3 says "forbidden" of what is
// not there), with a KMS key also kms:GenerateDataKey and kms:Decrypt.
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
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/fairlead/fairlead/pkg/awsapi"
	"github.com/fairlead/fairlead/pkg/blob"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Options says where the blobs are.
type Options struct {
	// Bucket is a general purpose bucket. (A directory bucket lists its objects
	// in no order.)
	Bucket string
	// Prefix begins the keys of all objects: "" or a blob's key with a "/" behind
	// it. S3 takes keys of 1,024 bytes, so it shortens the longest blob's.
	Prefix string
	// KMSKey encrypts the objects: a key's id or ARN. "" leaves it to what the
	// bucket is set to.
	KMSKey string
	// PathStyle puts the bucket's name into the path of a request and not into
	// the host's name, as servers other than AWS's need it.
	PathStyle bool
}

// Store is a blob.Store. Safe for concurrent use.
type Store struct {
	client  *s3.Client
	options Options
}

var _ blob.Store = (*Store)(nil)

// attemptTimeout bounds one attempt of one request. The largest blob takes
// that long at 5 Mbit/s.
const attemptTimeout = 4 * time.Minute

// New returns the store that o describes. It sends nothing.
func New(cfg aws.Config, o Options) (*Store, error) {
	if o.Bucket == "" {
		return nil, fairlead.Invalid(fairlead.CodeInvalidBucket, "no bucket is named")
	}
	if o.Prefix != "" {
		if err := blob.CheckKey(strings.TrimSuffix(o.Prefix, "/")); err != nil || !strings.HasSuffix(o.Prefix, "/") {
			return nil, fairlead.Invalid(fairlead.CodeInvalidBlobPrefix, "%.200q cannot begin the keys of objects: a blob's key with a / behind it does", o.Prefix)
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
		return "", fairlead.Invalid(fairlead.CodeInvalidBlobKey, "a blob's key of %d bytes is longer than %d with the prefix of this store", len(key), blob.MaxKey)
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
		in.BucketKeyEnabled = aws.Bool(true) // or KMS is asked, and paid, for each object
	}
	_, err = s.client.PutObject(ctx, in)
	return classify(ctx, "put blob "+key, err)
}

// maxReads is how often Get asks for a blob whose bytes broke off, or came
// changed, on the way. The SDK repeats a request until its answer begins.
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
					Message: fmt.Sprintf("get blob %s: its bytes did not arrive whole, %d times", key, read),
					Hint:    "Repeat the request in a while.",
					Err:     err,
				}
			}
			return nil, classify(ctx, "get blob "+key, err)
		}
	}
}

// get reads the object once. again says that the answer began and a repeat may
// bring all of it.
func (s *Store) get(ctx context.Context, object string) (_ []byte, again bool, err error) {
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{
		Bucket: &s.options.Bucket, Key: &object, ChecksumMode: types.ChecksumModeEnabled,
	})
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = out.Body.Close() }() // all was read, or nothing of it is used
	size := aws.ToInt64(out.ContentLength)
	if size > blob.MaxSize {
		return nil, false, fmt.Errorf("an object of %d bytes is no blob: %w", size, blob.ErrTooLarge)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(out.Body, data); err != nil {
		return nil, true, err
	}
	// The checksum is compared at the end, which is one read further.
	if n, err := io.Copy(io.Discard, out.Body); err != nil || n > 0 {
		return nil, true, cmp.Or(err, fmt.Errorf("%d bytes more than S3 said", n))
	}
	return data, false, nil
}

// Delete implements blob.Store. In a bucket with versions the blob's bytes stay
// until the bucket's lifecycle removes them.
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

// List implements blob.Store. It asks for 1,000 keys at a time, which is what
// S3 gives at most.
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
			// What is no blob, such as the empty object by which the console
			// shows a folder, was not put by a Store.
			if key := strings.TrimPrefix(aws.ToString(o.Key), s.options.Prefix); blob.CheckKey(key) == nil {
				keys = append(keys, key)
			}
		}
	}
	return keys, nil
}

// beginsKey reports whether a key can begin with prefix. S3 would refuse some
// of the others.
func beginsKey(prefix string) bool {
	if prefix == "" {
		return true
	}
	whole := prefix
	if strings.HasSuffix(prefix, "/") || strings.HasSuffix(prefix, ".") { // "a/", and "." of ".x"
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
	// A proxy's or a router's word, which is not S3's and has no code of it.
	if r, ok := errors.AsType[*awshttp.ResponseError](err); ok && r.HTTPStatusCode() == http.StatusServiceUnavailable && ctx.Err() == nil {
		return &fairlead.Error{
			Kind: fairlead.KindUnavailable, Code: fairlead.CodeAWSUnavailable,
			Message: op + ": S3 is busy", Hint: "Repeat the request in a while.", Err: err,
		}
	}
	return awsapi.Classify(ctx, "S3", op, err)
}
