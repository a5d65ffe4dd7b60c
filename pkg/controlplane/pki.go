package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/utils/clock"
)

const (
	// A plane outlives neither its Dir nor, by much, the work of a week.
	certificateLife = 365 * 24 * time.Hour
	authorityLife   = 10 * certificateLife
	// Machines that share a Dir, or a clock that is set back, may lag by this much.
	clockSkew = time.Hour
)

// pki is the plane's certificate authority and where it keeps its files. The authority
// and the service account key are made once for a Dir, so that credentials handed out
// before a restart stay good; leaves are made anew at every start.
type pki struct {
	dir   string
	clock clock.PassiveClock
	key   *ecdsa.PrivateKey
	cert  *x509.Certificate
	caPEM []byte
}

// keyPair is a certificate and its key in PEM.
type keyPair struct {
	cert, key []byte
}

func (p *pki) path(name string) string { return filepath.Join(p.dir, name) }

func loadOrCreatePKI(dir string, clk clock.PassiveClock) (*pki, error) {
	p := &pki{dir: dir, clock: clk}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the certificate directory, %w", err)
	}
	err := p.load()
	if errors.Is(err, fs.ErrNotExist) {
		err = p.create()
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (p *pki) load() error {
	keyPEM, err := os.ReadFile(p.path("ca.key"))
	if err != nil {
		return fmt.Errorf("reading the authority's key, %w", err)
	}
	if p.caPEM, err = os.ReadFile(p.path("ca.crt")); err != nil {
		return fmt.Errorf("reading the authority's certificate, %w", err)
	}
	if _, err = os.Stat(p.path("sa.key")); err != nil {
		return fmt.Errorf("reading the service account key, %w", err)
	}
	if p.key, err = decodeKey(keyPEM); err != nil {
		return fmt.Errorf("parsing %s, %w: remove the directory %s to start afresh", p.path("ca.key"), err, filepath.Dir(p.dir))
	}
	block, _ := pem.Decode(p.caPEM)
	if block == nil {
		return fmt.Errorf("parsing %s, no PEM block: remove the directory %s to start afresh", p.path("ca.crt"), filepath.Dir(p.dir))
	}
	if p.cert, err = x509.ParseCertificate(block.Bytes); err != nil {
		return fmt.Errorf("parsing %s, %w", p.path("ca.crt"), err)
	}
	return nil
}

func (p *pki) create() error {
	key, keyPEM, err := newKey()
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "karpenter-gpu-controlplane"},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	p.date(template, authorityLife)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return fmt.Errorf("signing the authority's certificate, %w", err)
	}
	if p.cert, err = x509.ParseCertificate(der); err != nil {
		return fmt.Errorf("parsing the authority's certificate, %w", err)
	}
	p.key, p.caPEM = key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	saPrivate, saPublic, err := newServiceAccountKey()
	if err != nil {
		return err
	}
	return errors.Join(
		p.write("sa.pub", saPublic),
		p.write("sa.key", saPrivate),
		p.write("ca.crt", p.caPEM),
		p.write("ca.key", keyPEM),
	)
}

// server signs a serving certificate for loopback and the names of the kubernetes Service.
func (p *pki) server() (keyPair, error) {
	return p.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		IPAddresses: []net.IP{net.ParseIP(loopback), net.ParseIP(serviceIP)},
	})
}

// client signs a certificate that the API server reads as a user with groups.
func (p *pki) client(user string, groups []string) (keyPair, error) {
	return p.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (p *pki) sign(template *x509.Certificate) (keyPair, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return keyPair{}, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return keyPair{}, fmt.Errorf("drawing a serial number, %w", err)
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	p.date(template, certificateLife)
	der, err := x509.CreateCertificate(rand.Reader, template, p.cert, key.Public(), p.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("signing the certificate of %q, %w", template.Subject.CommonName, err)
	}
	return keyPair{cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key: keyPEM}, nil
}

func (p *pki) date(template *x509.Certificate, life time.Duration) {
	now := p.clock.Now()
	template.NotBefore, template.NotAfter = now.Add(-clockSkew), now.Add(life)
}

func (p *pki) write(name string, data []byte) error {
	if err := os.WriteFile(p.path(name), data, 0o600); err != nil {
		return fmt.Errorf("writing %s, %w", name, err)
	}
	return nil
}

func (p *pki) writePair(name string, pair keyPair) error {
	return errors.Join(p.write(name+".crt", pair.cert), p.write(name+".key", pair.key))
}

// newKey makes a P-256 key: signatures as good as RSA's for a thousandth of the time.
func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generating a key, %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding a key, %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func newServiceAccountKey() (private, public []byte, err error) {
	key, private, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, fmt.Errorf("encoding the service account key, %w", err)
	}
	return private, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

func decodeKey(data []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("no PEM block")
	}
	return x509.ParseECPrivateKey(block.Bytes)
}
