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

// certificate is the server's certificate, read from two files. If the files change,
// for example by a renewal, the next connection uses the new certificate. Safe for
// concurrent use.
type certificate struct {
	cert, key string // paths

	mu       sync.Mutex
	loaded   *tls.Certificate
	ofCert   time.Time // modification time of the loaded certificate file
	ofKey    time.Time // modification time of the loaded key file
	logged   string    // the last logged error; "": none
	complain func(error)
}

func loadCertificate(cert, key string, complain func(error)) (*certificate, error) {
	c := &certificate{cert: cert, key: key, complain: complain}
	if err := c.load(); err != nil {
		return nil, &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeBadCertificate, Message: err.Error(),
			Hint: "--tls-cert and --tls-key name files in PEM: the certificate, followed by its intermediate certificates, and its key."}
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

// get returns the certificate in the files. If the files are not usable, for example
// because only one of the two files was replaced, it returns the previous certificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.load(); err != nil && err.Error() != c.logged {
		c.logged = err.Error()
		c.complain(err)
	}
	return c.loaded, nil
}

// transport returns a transport to the server from its own process. It accepts exactly
// this certificate, whatever host name it is for.
func (c *certificate) transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil
	t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true, VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
		own, err := c.get(nil)
		if err != nil || len(raw) == 0 || !bytes.Equal(raw[0], own.Certificate[0]) {
			return errors.New("another server answers at this server's address")
		}
		return nil
	}}
	return t
}
