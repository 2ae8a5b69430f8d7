// Package transport is how clients come in: over plaintext or TLS, as many as there is room for.
package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Files are what a server needs for TLS, in PEM. They are read again when they change.
type Files struct {
	Certificate string // the chain of the server, its own certificate first
	Key         string // of the certificate
	ClientCAs   string // whose signature clients' certificates need; empty if none are asked for
	// Client says whether clients need a certificate: tls.NoClientCert, tls.VerifyClientCertIfGiven or
	// tls.RequireAndVerifyClientCert.
	Client     tls.ClientAuthType
	MinVersion uint16 // of TLS
}

const (
	// lookEvery is how often the files are looked at. They are small, and what notices of changes miss (a name that is
	// exchanged further up, a network file system) is not to be told from no change.
	lookEvery = time.Second
	// expiresSoon is from when on a certificate is warned of, once a day.
	expiresSoon = 14 * 24 * time.Hour
	warnEvery   = 24 * time.Hour
)

// Certificates are the files of one listener as they are in force: the last of them that fit together. They are safe for
// concurrent use.
type Certificates struct {
	listener string // by which it is named to people
	files    Files
	log      *slog.Logger
	current  atomic.Pointer[pair]
	changed  func() // is told of another clientCAs; or nil

	mu      sync.Mutex
	trouble string    // with what the files hold now; empty if it is in force
	odd     *texts    // what they held when they were looked at last and did not fit together
	warned  time.Time // of the end of the certificate
}

// texts are what the files hold.
type texts struct{ certificate, key, clientCAs []byte }

func (t *texts) equal(o *texts) bool {
	return o != nil && bytes.Equal(t.certificate, o.certificate) && bytes.Equal(t.key, o.key) && bytes.Equal(t.clientCAs, o.clientCAs)
}

// pair is a certificate and its key, and what else is decided with them.
type pair struct {
	texts  texts
	leaf   *x509.Certificate
	config *tls.Config
}

// Load reads files for the listener of that name. An error names the file.
func Load(listener string, files Files, log *slog.Logger) (*Certificates, error) {
	c := &Certificates{listener: listener, files: files, log: log}
	p, _, err := c.read()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", listener, err)
	}
	c.current.Store(p)
	return c, nil
}

// read reads the files and puts together what they hold. What they hold is returned also if it does not fit together.
func (c *Certificates) read() (*pair, *texts, error) {
	var t texts
	for _, f := range []struct {
		name string
		to   *[]byte
	}{{c.files.Certificate, &t.certificate}, {c.files.Key, &t.key}, {c.files.ClientCAs, &t.clientCAs}} {
		if f.name == "" {
			continue
		}
		text, err := os.ReadFile(f.name)
		if err != nil {
			return nil, nil, err
		}
		*f.to = text
	}
	if now := c.current.Load(); now != nil && now.texts.equal(&t) {
		return now, &t, nil
	}
	cert, err := tls.X509KeyPair(t.certificate, t.key)
	if err != nil {
		return nil, &t, fmt.Errorf("certificate %s and key %s: %w", c.files.Certificate, c.files.Key, err)
	}
	p := &pair{texts: t, leaf: cert.Leaf, config: &tls.Config{
		Certificates: []tls.Certificate{cert}, ClientAuth: c.files.Client, MinVersion: c.files.MinVersion, //nolint:gosec // it is set
	}}
	if c.files.ClientCAs != "" {
		p.config.ClientCAs = x509.NewCertPool()
		if !p.config.ClientCAs.AppendCertsFromPEM(t.clientCAs) {
			return nil, &t, fmt.Errorf("clientCAs %s: there is no certificate in it", c.files.ClientCAs)
		}
	}
	return p, &t, nil
}

// OnChange has changed called whenever other clientCAs are in force. It is called before Run.
func (c *Certificates) OnChange(changed func()) { c.changed = changed }

// Trusts returns an error if the certificate of a client, followed by those that it was signed by, is not one of whom clientCAs have signed now.
func (c *Certificates) Trusts(chain []*x509.Certificate) error {
	pool := c.current.Load().config.ClientCAs
	if pool == nil || len(chain) == 0 {
		return errors.New("certificates of clients are no longer taken")
	}
	between := x509.NewCertPool()
	for _, one := range chain[1:] {
		between.AddCert(one)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err
}

// Config returns what a listener needs that speaks protocols. Each handshake has what is in force then.
func (c *Certificates) Config(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: c.files.MinVersion, NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			cfg := c.current.Load().config.Clone()
			cfg.NextProtos = protocols
			return cfg, nil
		},
	}
}

// Run follows the files until ctx ends.
func (c *Certificates) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if c.look(time.Now()) && c.changed != nil {
			c.changed()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look takes up what has changed. What does not fit together is not complained about at first: a key may come before its
// certificate. It reports whether others are trusted to sign clients' certificates than before.
func (c *Certificates) look(now time.Time) (others bool) {
	p, t, err := c.read()
	before := c.current.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	again := c.odd == nil && t == nil || t != nil && t.equal(c.odd)
	switch {
	case err == nil:
		if c.trouble != "" && p == before {
			c.log.Info("certificate: the files are again what is in force", "listener", c.listener)
		}
		c.odd, c.trouble = nil, ""
	case again && c.trouble != err.Error():
		c.trouble = err.Error()
		c.log.Error("certificate: what is in force stays, since the files are not right", "listener", c.listener, "err", err)
	}
	if err != nil {
		c.odd = t
		p = before
	}
	if p != before {
		c.current.Store(p)
		others = !bytes.Equal(p.texts.clientCAs, before.texts.clientCAs)
		c.warned = time.Time{}
		c.log.Info("certificate: what the files hold is in force", "listener", c.listener, "of", nameOf(p.leaf), "until", p.leaf.NotAfter.UTC())
	}
	if left := p.leaf.NotAfter.Sub(now); left < expiresSoon && now.Sub(c.warned) >= warnEvery {
		c.warned = now
		if left <= 0 {
			c.log.Error("certificate: it has expired: clients refuse it", "listener", c.listener, "file", c.files.Certificate, "since", p.leaf.NotAfter.UTC())
		} else {
			c.log.Warn("certificate: it expires soon", "listener", c.listener, "file", c.files.Certificate, "at", p.leaf.NotAfter.UTC())
		}
	}
	return others
}

// Status is what there is to say about the certificate of a listener.
type Status struct {
	Listener string    `json:"listener"`
	File     string    `json:"file"`
	Subject  string    `json:"subject"` // its names
	NotAfter time.Time `json:"notAfter"`
	Expired  bool      `json:"expired,omitempty"`
	Trouble  string    `json:"trouble,omitempty"` // why what the files hold now is not in force
}

// Status says what is in force.
func (c *Certificates) Status() Status {
	leaf := c.current.Load().leaf
	c.mu.Lock()
	defer c.mu.Unlock()
	return Status{
		Listener: c.listener, File: c.files.Certificate, Subject: nameOf(leaf), NotAfter: leaf.NotAfter,
		Expired: !time.Now().Before(leaf.NotAfter), Trouble: c.trouble,
	}
}

// nameOf says whom a certificate is for.
func nameOf(leaf *x509.Certificate) string {
	names := append([]string(nil), leaf.DNSNames...)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	for _, u := range leaf.URIs {
		names = append(names, u.String())
	}
	if len(names) == 0 {
		return leaf.Subject.String()
	}
	return strings.Join(names, ", ")
}

var expiryDesc = prometheus.NewDesc("tributary_certificate_expiry_timestamp_seconds",
	"When the certificate that is in force expires, in seconds since 1970, by listener.", []string{"listener"}, nil)

var troubleDesc = prometheus.NewDesc("tributary_certificate_trouble",
	"Whether the files of a listener's certificate hold something that cannot be put in force (1).", []string{"listener"}, nil)

// Metrics are those of the certificates of all listeners.
type Metrics []*Certificates

// Describe implements prometheus.Collector.
func (m Metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- expiryDesc
	ch <- troubleDesc
}

// Collect implements prometheus.Collector.
func (m Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m {
		s := c.Status()
		trouble := 0.0
		if s.Trouble != "" {
			trouble = 1
		}
		ch <- prometheus.MustNewConstMetric(expiryDesc, prometheus.GaugeValue, float64(s.NotAfter.Unix()), c.listener)
		ch <- prometheus.MustNewConstMetric(troubleDesc, prometheus.GaugeValue, trouble, c.listener)
	}
}
