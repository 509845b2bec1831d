package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// certificate creates a root certificate, and a certificate for this machine, which the
// root signs: "certificate CA CERT KEY". It replaces existing files.
func certificate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: certificate CA CERT KEY")
	}
	template := func(name string) *x509.Certificate {
		return &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true}
	}
	root, leaf := template("root"), template("leaf")
	root.IsCA, root.KeyUsage = true, x509.KeyUsageCertSign
	leaf.IPAddresses, leaf.DNSNames = []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"}
	rootKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, rootKey.Public(), rootKey)
	ts.Check(err)
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, root, leafKey.Public(), rootKey)
	ts.Check(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(leafKey)
	ts.Check(err)
	for i, b := range []*pem.Block{{Type: "CERTIFICATE", Bytes: rootDER}, {Type: "CERTIFICATE", Bytes: leafDER}, {Type: "PRIVATE KEY", Bytes: keyDER}} {
		ts.Check(os.WriteFile(ts.MkAbs(args[i]), pem.EncodeToMemory(b), 0o600))
	}
}
