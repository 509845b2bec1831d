package kms_test

import (
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awskms "github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"

	"github.com/fairlead/fairlead/pkg/approval"
	"github.com/fairlead/fairlead/pkg/approval/kms"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/tools/moto"
)

var server moto.Server

func TestMain(m *testing.M) {
	code := m.Run()
	server.Stop()
	os.Exit(code)
}

// A key that never leaves KMS approves a plan, and the step verifies with the public key that the policy names.
func TestKeyOfKMSApproves(t *testing.T) {
	cfg := aws.Config{Region: "us-east-1", BaseEndpoint: aws.String(server.Endpoint(t)), Credentials: credentials.NewStaticCredentialsProvider("test", "test", "")}
	make := func(spec types.KeySpec) string {
		t.Helper()
		out, err := awskms.NewFromConfig(cfg, func(o *awskms.Options) { o.Region = "eu-central-1" }).CreateKey(t.Context(), &awskms.CreateKeyInput{KeySpec: spec, KeyUsage: types.KeyUsageTypeSignVerify})
		if err != nil {
			t.Fatal(err)
		}
		return *out.KeyMetadata.Arn
	}
	key, err := kms.Open(t.Context(), cfg, make(types.KeySpecEccNistP256))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	digest := "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	a := approval.Plan{V: 1, ID: "0123456789abcdef", Subject: approval.Subject{Install: "ins_1", Component: "db", Operation: "apply", ChangeSet: digest, Plan: digest},
		IssuedAt: approval.At(now), ExpiresAt: approval.At(now.Add(time.Hour))}
	envelope, err := a.Sign(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := approval.ParsePublic(key.Public().PEM())
	if err != nil {
		t.Fatal(err)
	}
	if use, err := approval.Verify(t.Context(), envelope, []approval.Public{public}, a.Subject, nil, now); err != nil || use.Key != public.ID() {
		t.Errorf("the approval verifies as %+v, %v", use, err)
	}
	for name, arn := range map[string]string{"an RSA key": make(types.KeySpecRsa2048), "P-384": make(types.KeySpecEccNistP384), "a name": "alias/approvals"} {
		if _, err := kms.Open(t.Context(), cfg, arn); fairlead.CodeOf(err) != fairlead.CodeInvalidApprovalKey {
			t.Errorf("%s: %v", name, err)
		}
	}
}
