package local

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// certificate is the server's, from two files. When they change, such as by a
// renewal, the next connection gets what they hold. Safe for concurrent use.
type certificate struct {
	cert, key string // paths

	mu       sync.Mutex
	loaded   *tls.Certificate
	ofCert   time.Time // when the files were changed that are loaded
	ofKey    time.Time
	logged   string // the error that was logged last; "": none
	complain func(error)
}

func loadCertificate(cert, key string, complain func(error)) (*certificate, error) {
	c := &certificate{cert: cert, key: key, complain: complain}
	if err := c.load(); err != nil {
		return nil, &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeBadCertificate, Message: err.Error(),
			Hint: "--tls-cert and --tls-key name files in PEM: the certificate, followed by those between it and its root, and its key."}
	}
	return c, nil
}

func (c *certificate) load() error {
	cert, certErr := os.Stat(c.cert)
	key, keyErr := os.Stat(c.key)
	if err := errors.Join(certErr, keyErr); err != nil {
		return fmt.Errorf("read the certificate: %w", err)
	}
	if c.loaded != nil && cert.ModTime().Equal(c.ofCert) && key.ModTime().Equal(c.ofKey) {
		return nil
	}
	c.ofCert, c.ofKey = cert.ModTime(), key.ModTime()
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("read the certificate %s and its key %s: %w", c.cert, c.key, err)
	}
	c.loaded, c.logged = &pair, ""
	return nil
}

// get returns the certificate that the files hold. What cannot be used, such as
// one of two files that is replaced before the other, leaves the one before.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.load(); err != nil && err.Error() != c.logged {
		c.logged = err.Error()
		c.complain(err)
	}
	return c.loaded, nil
}

// transport reaches the server from its own process, whatever name the certificate
// is for: it takes that very certificate, and no other.
func (c *certificate) transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil
	t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true, VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
		own, err := c.get(nil)
		if err != nil || len(raw) == 0 || !bytes.Equal(raw[0], own.Certificate[0]) {
			return errors.New("another server answers at our address")
		}
		return nil
	}}
	return t
}
