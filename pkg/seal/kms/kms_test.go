package kms_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awskms "github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/seal"
	"github.com/fairlead/fairlead/pkg/seal/kms"
	"github.com/fairlead/fairlead/pkg/seal/kms/kmstest"
	"github.com/fairlead/fairlead/pkg/seal/sealtest"
	"github.com/fairlead/fairlead/tools/moto"
)

var server moto.Server

func TestMain(m *testing.M) {
	code := m.Run()
	server.Stop()
	os.Exit(code)
}

func configAt(url string) aws.Config {
	return aws.Config{Region: "eu-central-1", BaseEndpoint: aws.String(url), Credentials: credentials.NewStaticCredentialsProvider("test", "test", "")}
}

func makeKey(t *testing.T, cfg aws.Config, spec types.KeySpec, usage types.KeyUsageType) string {
	t.Helper()
	out, err := awskms.NewFromConfig(cfg).CreateKey(t.Context(), &awskms.CreateKeyInput{KeySpec: spec, KeyUsage: usage})
	if err != nil {
		t.Fatal(err)
	}
	return *out.KeyMetadata.Arn
}

func sealingKey(t *testing.T, cfg aws.Config) string {
	t.Helper()
	return makeKey(t, cfg, types.KeySpecSymmetricDefault, types.KeyUsageTypeEncryptDecrypt)
}

func TestKMSConforms(t *testing.T) {
	cfg := configAt(server.Endpoint(t))
	keys := map[string]string{}
	sealtest.Run(t, func(t *testing.T, name string) seal.Sealer {
		id := t.Name() + "/" + name
		if keys[id] == "" {
			keys[id] = sealingKey(t, cfg)
		}
		return kms.New(cfg, time.Now, keys[id])
	})
}

// calls records the names of the KMS operations that are called with a configuration.
type calls struct {
	mu   sync.Mutex
	list []string
}

func (c *calls) note(cfg aws.Config) aws.Config {
	cfg.APIOptions = append(slices.Clone(cfg.APIOptions), func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("note", func(
			ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler,
		) (middleware.InitializeOutput, middleware.Metadata, error) {
			c.mu.Lock()
			c.list = append(c.list, middleware.GetOperationName(ctx))
			c.mu.Unlock()
			return next.HandleInitialize(ctx, in)
		}), middleware.After)
	})
	return cfg
}

// taken returns the operations since the last call of taken.
func (c *calls) taken() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { c.list = nil }()
	return strings.Join(c.list, " ")
}

const place = "install/ins_1/input/password"

// A process calls KMS once an hour for each data key, not once for each value, because KMS
// charges for calls and limits their rate.
func TestKMSIsCalledOnceAnHour(t *testing.T) {
	var asked calls
	cfg := asked.note(configAt(server.Endpoint(t)))
	key := sealingKey(t, cfg)
	asked.taken()
	var mu sync.Mutex
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	now := func() time.Time { mu.Lock(); defer mu.Unlock(); return at }
	pass := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); at = at.Add(d) }
	writer, reader := kms.New(cfg, now, key), kms.New(cfg, now, key)
	value := func() []byte {
		t.Helper()
		b, err := writer.Seal(t.Context(), []byte("x"), place)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	open := func(s *kms.Sealer, b []byte) {
		t.Helper()
		if got, err := s.Open(t.Context(), b, place); err != nil || string(got) != "x" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	expect := func(what, want string) {
		t.Helper()
		if got := asked.taken(); got != want {
			t.Errorf("%s calls %q of KMS, want %q", what, got, want)
		}
	}
	a, b := value(), value()
	expect("sealing two values", "GenerateDataKey")
	open(writer, a)
	expect("opening in the process that sealed", "")
	open(reader, a)
	open(reader, b)
	expect("opening in another process", "Decrypt")
	pass(time.Hour - time.Second)
	value()
	open(reader, a)
	expect("just before the end of the hour", "")
	pass(time.Second)
	c := value()
	expect("sealing an hour later", "GenerateDataKey")
	open(reader, a)
	expect("reading an hour later", "Decrypt")
	open(reader, c)
	expect("reading a value of another data key", "Decrypt")
}

func TestRotationToAnotherKMSKeyKeepsValues(t *testing.T) {
	cfg := configAt(server.Endpoint(t))
	older, newer := sealingKey(t, cfg), sealingKey(t, cfg)
	before, after := kms.New(cfg, time.Now, older), kms.New(cfg, time.Now, newer, older)
	old, err := before.Seal(t.Context(), []byte("old"), place)
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := after.Seal(t.Context(), []byte("fresh"), place)
	if err != nil {
		t.Fatal(err)
	}
	for want, b := range map[string][]byte{"old": old, "fresh": fresh} {
		if got, err := after.Open(t.Context(), b, place); err != nil || string(got) != want {
			t.Errorf("opened %q, %v; want %q", got, err, want)
		}
	}
	// The role of this test has access to every key. A real role with too many permissions
	// has the same access.
	if got, err := before.Open(t.Context(), fresh, place); !errors.Is(err, seal.ErrUnknownKey) || got != nil {
		t.Errorf("a value of a foreign key opens: %q, %v", got, err)
	}
}

// A data key that was created for another use is refused.
func TestDataKeyOfAnotherUseIsRefused(t *testing.T) {
	cfg := configAt(server.Endpoint(t))
	key := sealingKey(t, cfg)
	for name, purpose := range map[string]map[string]string{"another use": {"fairlead": "backup"}, "no purpose": nil} {
		out, err := awskms.NewFromConfig(cfg).GenerateDataKey(t.Context(), &awskms.GenerateDataKeyInput{KeyId: &key, KeySpec: types.DataKeySpecAes256, EncryptionContext: purpose})
		if err != nil {
			t.Fatal(err)
		}
		forged := append([]byte{2, byte(len(out.CiphertextBlob) >> 8), byte(len(out.CiphertextBlob))}, out.CiphertextBlob...)
		forged = append(forged, make([]byte, 28)...)
		if _, err := kms.New(cfg, time.Now, key).Open(t.Context(), forged, place); !errors.Is(err, seal.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOpenReportsErrorsOfKMS(t *testing.T) {
	cfg := configAt(server.Endpoint(t))
	key := sealingKey(t, cfg)
	b, err := kms.New(cfg, time.Now, key).Seal(t.Context(), []byte("x"), place)
	if err != nil {
		t.Fatal(err)
	}
	// moto also opens values of a disabled key. So the test uses its own server, which
	// returns the errors of KMS.
	for _, c := range []struct {
		code string
		want func(error) bool
		say  string
	}{
		{"DisabledException", func(err error) bool { return errors.Is(err, seal.ErrUnknownKey) }, "enable it again"},
		{"KMSInvalidStateException", func(err error) bool { return errors.Is(err, seal.ErrUnknownKey) }, "deleted"},
		{"AccessDeniedException", func(err error) bool { return errors.Is(err, seal.ErrUnknownKey) }, "kms:Decrypt"},
		{"InvalidCiphertextException", func(err error) bool { return errors.Is(err, seal.ErrDamaged) }, "restore"},
		{"ThrottlingException", func(err error) bool { return fairlead.KindOf(err) == fairlead.KindUnavailable }, "Repeat"},
	} {
		refuser := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-amz-json-1.1")
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"__type":%q,"message":"no"}`, c.code)
		}))
		cfg := configAt(refuser.URL)
		cfg.Retryer = func() aws.Retryer { return aws.NopRetryer{} }
		_, err := kms.New(cfg, time.Now, key).Open(t.Context(), b, place)
		e, ok := errors.AsType[*fairlead.Error](err)
		if !ok || !c.want(err) || !strings.Contains(e.Hint, c.say) {
			t.Errorf("%s: %v", c.code, err)
		}
		if _, err := kms.New(cfg, time.Now, key).Seal(t.Context(), []byte("x"), place); err == nil {
			t.Errorf("%s: Seal succeeded", c.code)
		}
		refuser.Close()
	}
}

func TestDerivedKeyDependsOnlyOnKeyAndLabel(t *testing.T) {
	cfg := configAt(server.Endpoint(t))
	key := makeKey(t, cfg, types.KeySpecHmac256, types.KeyUsageTypeGenerateVerifyMac)
	derive := func(key, label string) []byte {
		t.Helper()
		b, err := kms.Derive(t.Context(), cfg, key, label)
		if err != nil || len(b) != 32 {
			t.Fatalf("%x, %v", b, err)
		}
		return b
	}
	a := derive(key, "tokens")
	if !bytes.Equal(a, derive(key, "tokens")) {
		t.Error("another process derives a different key")
	}
	if bytes.Equal(a, derive(key, "other")) || bytes.Equal(a, derive(makeKey(t, cfg, types.KeySpecHmac256, types.KeyUsageTypeGenerateVerifyMac), "tokens")) {
		t.Error("another label or another KMS key derives the same key")
	}
	if _, err := kms.Derive(t.Context(), cfg, sealingKey(t, cfg), "tokens"); err == nil {
		t.Error("Derive accepts a key that is not an HMAC key")
	}
}

func TestSignatureVerifiesWithThePublicKey(t *testing.T) {
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg := configAt(kmstest.Start(t, "", map[string]ed25519.PrivateKey{"arn:key": key}))
	s, err := kms.NewSigning(t.Context(), cfg, "arn:key")
	if err != nil {
		t.Fatal(err)
	}
	if !s.Public().Equal(pub) {
		t.Error("Public returns a different key")
	}
	for _, message := range []string{"x", strings.Repeat("x", kms.MaxMessage)} {
		sig, err := s.Sign(t.Context(), []byte(message))
		if err != nil || !ed25519.Verify(pub, []byte(message), sig) {
			t.Errorf("sign a message of %d bytes: %v", len(message), err)
		}
	}
	if _, err := s.Sign(t.Context(), make([]byte, kms.MaxMessage+1)); err == nil {
		t.Error("Sign accepts a message that is too long for KMS")
	}
	if _, err := kms.NewSigning(t.Context(), cfg, "arn:other"); err == nil {
		t.Error("NewSigning accepts a missing key")
	}
}

func TestSigningNeedsAnEd25519Key(t *testing.T) {
	cfg := configAt(server.Endpoint(t))
	if _, err := kms.NewSigning(t.Context(), cfg, makeKey(t, cfg, types.KeySpecEccNistP256, types.KeyUsageTypeSignVerify)); err == nil || !strings.Contains(err.Error(), "ECC_NIST_EDWARDS25519") {
		t.Errorf("NewSigning with a P-256 key: %v", err)
	}
}

// After the loss of a Region the control plane uses replicas of its keys in another one. They open what was sealed, and tokens
// stay valid. moto has no Ed25519 keys.
func TestReplicasDoTheWorkOfTheirKeys(t *testing.T) {
	first := configAt(server.Endpoint(t))
	other := first.Copy()
	other.Region = "eu-west-1"
	replicated := func(spec types.KeySpec, usage types.KeyUsageType) (key, replica string) {
		client := awskms.NewFromConfig(first)
		made, err := client.CreateKey(t.Context(), &awskms.CreateKeyInput{KeySpec: spec, KeyUsage: usage, MultiRegion: aws.Bool(true)})
		if err != nil {
			t.Fatal(err)
		}
		copied, err := client.ReplicateKey(t.Context(), &awskms.ReplicateKeyInput{KeyId: made.KeyMetadata.Arn, ReplicaRegion: &other.Region})
		if err != nil {
			t.Fatal(err)
		}
		key, replica = *made.KeyMetadata.Arn, *copied.ReplicaKeyMetadata.Arn
		if want := strings.Replace(key, first.Region, other.Region, 1); replica != want || !strings.Contains(key, ":key/mrk-") {
			t.Fatalf("the replica of %s is %s, want %s", key, replica, want)
		}
		return key, replica
	}

	key, replica := replicated(types.KeySpecSymmetricDefault, types.KeyUsageTypeEncryptDecrypt)
	sealed, err := kms.New(first, time.Now, key).Seal(t.Context(), []byte("a password"), "install/1")
	if err != nil {
		t.Fatal(err)
	}
	if opened, err := kms.New(other, time.Now, replica).Open(t.Context(), sealed, "install/1"); err != nil || string(opened) != "a password" {
		t.Errorf("the replica opens %q; error %v", opened, err)
	}
	own := sealingKey(t, other)
	if opened, err := kms.New(other, time.Now, own).Open(t.Context(), sealed, "install/1"); err == nil {
		t.Errorf("a key of the other Region that is no replica opens %q", opened)
	}

	key, replica = replicated(types.KeySpecHmac256, types.KeyUsageTypeGenerateVerifyMac)
	derived, err := kms.Derive(t.Context(), first, key, "tokens")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := kms.Derive(t.Context(), other, replica, "tokens"); err != nil || !bytes.Equal(again, derived) {
		t.Errorf("the replica derives another key of tokens; error %v", err)
	}
}
