package s3_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/fairlead/fairlead/pkg/blob"
	"github.com/fairlead/fairlead/pkg/blob/blobtest"
	"github.com/fairlead/fairlead/pkg/blob/s3"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/tools/moto"
	"github.com/fairlead/fairlead/tools/shortrun"
)

var server moto.Server

func TestMain(m *testing.M) {
	code := m.Run()
	server.Stop()
	os.Exit(code)
}

func config(endpoint string) aws.Config {
	return aws.Config{
		Region: "eu-central-1", BaseEndpoint: &endpoint,
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	}
}

func client(t *testing.T) *awss3.Client {
	t.Helper()
	return awss3.NewFromConfig(config(server.Endpoint(t)), func(o *awss3.Options) { o.UsePathStyle = true })
}

// bucket creates an empty bucket.
func bucket(t *testing.T) string {
	t.Helper()
	name := "t-" + strings.ToLower(rand.Text())
	if _, err := client(t).CreateBucket(t.Context(), &awss3.CreateBucketInput{
		Bucket:                    &name,
		CreateBucketConfiguration: &types.CreateBucketConfiguration{LocationConstraint: "eu-central-1"},
	}); err != nil {
		t.Fatal(err)
	}
	return name
}

func open(t *testing.T, o s3.Options) *s3.Store {
	t.Helper()
	o.PathStyle = true
	s, err := s3.New(config(server.Endpoint(t)), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestS3Conforms(t *testing.T) {
	shortrun.OneDayIn(t, 2, 0)
	var mu sync.Mutex
	buckets := map[string]string{} // bucket names by folder, so that a second Open gets the same bucket
	blobtest.Run(t, blobtest.Harness{
		Open: func(t *testing.T, dir string) (blob.Store, func()) {
			mu.Lock()
			defer mu.Unlock()
			if buckets[dir] == "" {
				buckets[dir] = bucket(t)
			}
			return open(t, s3.Options{Bucket: buckets[dir]}), func() {}
		},
	})
}

func TestPrefixSeparatesStoresOfABucket(t *testing.T) {
	b := bucket(t)
	one, two := open(t, s3.Options{Bucket: b, Prefix: "org/one/"}), open(t, s3.Options{Bucket: b, Prefix: "org/two/"})
	for _, s := range []*s3.Store{one, two} {
		if err := s.Put(t.Context(), "state/vpc", fmt.Append(nil, s == one)); err != nil {
			t.Fatal(err)
		}
	}
	if err := two.Delete(t.Context(), "state/vpc"); err != nil {
		t.Fatal(err)
	}
	if data, err := one.Get(t.Context(), "state/vpc"); err != nil || string(data) != "true" {
		t.Errorf("got %q, %v", data, err)
	}
	if keys, err := one.List(t.Context(), "state/"); err != nil || !slices.Equal(keys, []string{"state/vpc"}) {
		t.Errorf("listed %q, %v", keys, err)
	}
	if keys, err := two.List(t.Context(), ""); err != nil || len(keys) != 0 {
		t.Errorf("an empty store lists %q, %v", keys, err)
	}
	long := strings.Repeat("a/", blob.MaxKey/2-1) + "a"
	if err := one.Put(t.Context(), long, nil); fairlead.KindOf(err) != fairlead.KindInvalid {
		t.Errorf("put with a key that the prefix makes too long: %v, want kind invalid", err)
	}
}

func TestListReadsAllPagesAndSkipsForeignObjects(t *testing.T) {
	b := bucket(t)
	s := open(t, s3.Options{Bucket: b, Prefix: "p/"})
	const n = 1003
	keys := make(chan string)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for key := range keys {
				if err := s.Put(t.Context(), key, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range n {
		keys <- fmt.Sprintf("k/%04d", i)
	}
	close(keys)
	wg.Wait()
	for _, foreign := range []string{"p/k/", "p/", "q/k", "p/k/a b"} {
		if _, err := client(t).PutObject(t.Context(), &awss3.PutObjectInput{Bucket: &b, Key: &foreign, Body: strings.NewReader("")}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.List(t.Context(), "k/")
	if err != nil || len(got) != n || !slices.IsSorted(got) || got[n-1] != "k/1002" {
		t.Errorf("list returned %d keys, %v; want %d in order", len(got), err, n)
	}
}

func TestKMSKeyEncryptsTheObject(t *testing.T) {
	b := bucket(t)
	const key = "arn:aws:kms:eu-central-1:123456789012:key/0d1b2c3d-0000-4000-8000-000000000000"
	if err := open(t, s3.Options{Bucket: b, KMSKey: key}).Put(t.Context(), "k", []byte("x")); err != nil {
		t.Fatal(err)
	}
	out, err := client(t).HeadObject(t.Context(), &awss3.HeadObjectInput{
		Bucket: &b, Key: aws.String("k"), ChecksumMode: types.ChecksumModeEnabled,
	})
	if err != nil || out.ServerSideEncryption != types.ServerSideEncryptionAwsKms || aws.ToString(out.SSEKMSKeyId) != key {
		t.Errorf("the encryption of the object is %v, %v", out, err)
	}
	if aws.ToString(out.ChecksumSHA256) == "" {
		t.Error("the object has no checksum")
	}
}

// cut returns a store with an object, and a counter of the store's reads. The function spoil
// answers the first n reads: the response is incomplete, or has a changed byte.
func cut(t *testing.T, n int32, spoil func(http.ResponseWriter)) (*s3.Store, *atomic.Int32) {
	t.Helper()
	target, err := url.Parse(server.Endpoint(t))
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	var reads atomic.Int32
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && reads.Add(1) <= n {
			spoil(w)
			return
		}
		r.Host = target.Host
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	s, err := s3.New(config(front.URL), s3.Options{Bucket: bucket(t), PathStyle: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "k", []byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	return s, &reads
}

func halfway(w http.ResponseWriter) {
	w.Header().Set("Content-Length", "10")
	_, _ = w.Write([]byte("01234")) // the server then breaks the connection
}

func changed(w http.ResponseWriter) {
	w.Header().Set("X-Amz-Checksum-Sha256", "hNiYd/DUBB77a/kaFvAkjy/Vc+avBcGfr7bn4gveRQg=")
	_, _ = w.Write([]byte("x123456789"))
}

func TestIncompleteObjectIsReadAgain(t *testing.T) {
	for what, spoil := range map[string]func(http.ResponseWriter){"half of the bytes": halfway, "a changed byte": changed} {
		s, _ := cut(t, 2, spoil)
		if data, err := s.Get(t.Context(), "k"); err != nil || string(data) != "0123456789" {
			t.Errorf("after %s in two responses: %q, %v", what, data, err)
		}
		s, reads := cut(t, 100, spoil)
		data, err := s.Get(t.Context(), "k")
		if fairlead.KindOf(err) != fairlead.KindUnavailable || data != nil || reads.Load() != 3 {
			t.Errorf("%s in all responses: %q, %v after %d requests; want kind unavailable after 3", what, data, err, reads.Load())
		}
	}
}

func TestMissingBucketHasItsOwnCode(t *testing.T) {
	s := open(t, s3.Options{Bucket: "t-" + strings.ToLower(rand.Text())})
	_, err := s.Get(t.Context(), "k")
	if fairlead.CodeOf(err) != "bucket-missing" {
		t.Errorf("got %v, want code bucket-missing", err)
	}
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	for _, o := range []s3.Options{{}, {Bucket: "b", Prefix: "p"}, {Bucket: "b", Prefix: "/"}, {Bucket: "b", Prefix: "../"}, {Bucket: "b", Prefix: "a//"}} {
		if _, err := s3.New(aws.Config{}, o); fairlead.KindOf(err) != fairlead.KindInvalid {
			t.Errorf("%+v: %v, want kind invalid", o, err)
		}
	}
}

// keepVersions turns on the versions of a bucket, which every bucket of the stack has.
func keepVersions(t *testing.T, name string) {
	t.Helper()
	if _, err := client(t).PutBucketVersioning(t.Context(), &awss3.PutBucketVersioningInput{Bucket: &name,
		VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled}}); err != nil {
		t.Fatal(err)
	}
}

// A table that is restored names blobs that were deleted after its backup. Their versions are still in the bucket, or, after the
// loss of a Region, in the bucket with their copies.
func TestDeletedBlobExistsAgain(t *testing.T) {
	ctx := t.Context()
	b, copies := bucket(t), bucket(t)
	keepVersions(t, b)
	keepVersions(t, copies)
	s, other := open(t, s3.Options{Bucket: b, Prefix: "p/", Copies: copies}), open(t, s3.Options{Bucket: copies, Prefix: "p/"})
	put := func(s *s3.Store, key, text string) {
		t.Helper()
		if err := s.Put(ctx, key, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(s *s3.Store, key string) {
		t.Helper()
		if err := s.Delete(ctx, key); err != nil {
			t.Fatal(err)
		}
	}
	put(s, "kept", "here")
	put(other, "kept", "elsewhere")
	put(s, "state/1/web=a", "first")
	put(s, "state/1/web=a", "deleted here")
	remove(s, "state/1/web=a")
	put(other, "state/1/web=a", "elsewhere")
	put(other, "copied", "copied")
	put(other, "gone", "deleted there")
	remove(other, "gone")
	put(s, "lost/longer", "another key that begins with the key")
	for _, row := range []struct {
		key, want string
		revived   bool
		err       error
	}{
		{"kept", "here", false, nil},
		{"state/1/web=a", "deleted here", true, nil},
		{"copied", "copied", true, nil},
		{"gone", "deleted there", true, nil},
		{"lost", "", false, blob.ErrNotFound},
	} {
		revived, err := s.Revive(ctx, row.key)
		if revived != row.revived || !errors.Is(err, row.err) {
			t.Errorf("%s: revived %t, %v; want %t, %v", row.key, revived, err, row.revived, row.err)
		}
		data, err := s.Get(ctx, row.key)
		if string(data) != row.want || !errors.Is(err, row.err) {
			t.Errorf("%s reads %q, %v; want %q", row.key, data, err, row.want)
		}
	}
	if _, err := s.Revive(ctx, "../x"); fairlead.KindOf(err) != fairlead.KindInvalid {
		t.Errorf("a key that is not valid: %v", err)
	}
	alone := open(t, s3.Options{Bucket: b, Prefix: "p/"})
	if _, err := alone.Revive(ctx, "lost"); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("without a bucket of copies: %v", err)
	}
}
