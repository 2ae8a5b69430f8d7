// Package transport accepts the connections of clients, plaintext or TLS, and bounds what they cost.
package transport

import (
	"bytes"
	"cmp"
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

	"tributary/internal/spiffe"
	"tributary/internal/words"
)

// Files are the PEM files of a TLS server. They are read again when they change. Certificate and ClientCAs may be names of package spiffe.
type Files struct {
	Certificate string // the chain of the server, its own certificate first
	Key         string // of the certificate, if that is a file
	ClientCAs   string // the authorities of clients' certificates; empty if clients need none
	WorkloadAPI string // the address of the SPIFFE Workload API; empty for that of the environment
	// Client says whether clients need a certificate: tls.NoClientCert, tls.VerifyClientCertIfGiven or
	// tls.RequireAndVerifyClientCert.
	Client     tls.ClientAuthType
	MinVersion uint16 // of TLS
}

const (
	// lookEvery is how often the files are read. They are small, and file notifications miss some changes: those of a link further up, or of
	// a network file system.
	lookEvery = time.Second
	// expiresSoon is how long before its end a certificate is warned of, once a day.
	expiresSoon = 14 * 24 * time.Hour
	warnEvery   = 24 * time.Hour
)

// Certificates has the certificate of one listener: that of the last files that fit together. It is safe for concurrent use.
type Certificates struct {
	listener string // its name in logs
	files    Files
	log      *slog.Logger
	api      *spiffe.API          // or nil
	current  atomic.Pointer[pair] // nil until the API has answered for the first time
	changed  func()               // called when other clientCAs are in force; or nil

	mu      sync.Mutex
	trouble string    // why the present content of the files is not in force; empty if it is
	odd     *texts    // the content of the last look, if it did not fit together
	warned  time.Time // when the end of the certificate was last warned of
}

// texts is the content of the files, and the answer of the Workload API.
type texts struct {
	certificate, key, clientCAs []byte
	said                        *spiffe.Credentials
}

func (t *texts) equal(o *texts) bool {
	return o != nil && bytes.Equal(t.certificate, o.certificate) && bytes.Equal(t.key, o.key) && t.sameTrust(o) && t.said.Equal(o.said)
}

// sameTrust reports whether the authorities of clients' certificates are the same.
func (t *texts) sameTrust(o *texts) bool {
	return bytes.Equal(t.clientCAs, o.clientCAs) && t.said.SameTrust(o.said)
}

// pair is a certificate with its key, and the configuration made of them.
type pair struct {
	texts  texts
	leaf   *x509.Certificate
	config *tls.Config
}

// Load reads the files of a listener. An error names the file. If the Workload API does not answer, Load succeeds, and handshakes fail
// until it does.
func Load(ctx context.Context, listener string, files Files, log *slog.Logger) (*Certificates, error) {
	c := &Certificates{listener: listener, files: files, log: log}
	if spiffe.Named(files.Certificate) || spiffe.Named(files.ClientCAs) {
		c.api = spiffe.New(files.WorkloadAPI)
		if _, err := c.api.Ask(ctx); err != nil {
			c.trouble = err.Error()
			log.Error(saysNone, "listener", listener, "err", err)
			return c, nil
		}
	}
	p, _, err := c.read()
	if err != nil {
		return nil, err
	}
	c.current.Store(p)
	return c, nil
}

// read reads the files, and the last answer of the Workload API. It returns the texts even if they do not fit together.
func (c *Certificates) read() (*pair, *texts, error) {
	var t texts
	for _, f := range []struct {
		name string
		to   *[]byte
	}{{c.files.Certificate, &t.certificate}, {c.files.Key, &t.key}, {c.files.ClientCAs, &t.clientCAs}} {
		if f.name == "" || spiffe.Named(f.name) {
			continue
		}
		text, err := os.ReadFile(f.name)
		if err != nil {
			return nil, nil, err
		}
		*f.to = text
	}
	var away error
	if c.api != nil {
		if t.said, away = c.api.Last(); t.said == nil {
			return nil, nil, away
		}
	}
	if now := c.current.Load(); now != nil && now.texts.equal(&t) {
		return now, &t, away
	}
	p, err := c.join(&t)
	if err != nil {
		return nil, &t, err
	}
	return p, &t, away
}

// join makes a pair of texts.
func (c *Certificates) join(t *texts) (*pair, error) {
	var cert *tls.Certificate
	var err error
	if spiffe.Named(c.files.Certificate) {
		cert, err = t.said.Certificate(c.files.Certificate)
	} else {
		var made tls.Certificate
		made, err = tls.X509KeyPair(t.certificate, t.key)
		cert = &made
	}
	switch {
	case err != nil && c.files.Key != "":
		return nil, fmt.Errorf("certificate %s and key %s: %w", c.files.Certificate, c.files.Key, words.KeyPairError(err))
	case err != nil:
		return nil, fmt.Errorf("certificate %s: %w", c.files.Certificate, err)
	}
	p := &pair{texts: *t, leaf: cert.Leaf, config: &tls.Config{
		Certificates: []tls.Certificate{*cert}, ClientAuth: c.files.Client, MinVersion: c.files.MinVersion, //nolint:gosec // it is set
		VerifyConnection: verifyURIs,
	}}
	switch trust := c.files.ClientCAs; {
	case trust == "":
	case spiffe.Named(trust):
		p.config.ClientCAs = t.said.Authorities(trust)
		p.config.VerifyConnection = func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return nil // whether there has to be one was looked at
			}
			return t.said.Verify(trust, state.PeerCertificates)
		}
	default:
		p.config.ClientCAs = x509.NewCertPool()
		if !p.config.ClientCAs.AppendCertsFromPEM(t.clientCAs) {
			return nil, fmt.Errorf("clientCAs %s: there is no certificate in it", trust)
		}
	}
	return p, nil
}

// OnChange sets the function that is called when other clientCAs are in force. Call it before Run.
func (c *Certificates) OnChange(changed func()) { c.changed = changed }

// Trusts returns an error if the present clientCAs do not verify the chain of a client's certificate.
func (c *Certificates) Trusts(chain []*x509.Certificate) error {
	now := c.current.Load()
	if now == nil || now.config.ClientCAs == nil || len(chain) == 0 {
		return errors.New("certificates of clients are no longer taken")
	}
	if spiffe.Named(c.files.ClientCAs) {
		return now.texts.said.Verify(c.files.ClientCAs, chain)
	}
	between := x509.NewCertPool()
	for _, one := range chain[1:] {
		between.AddCert(one)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: now.config.ClientCAs, Intermediates: between,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}

// saysNone is said of a Workload API that has not answered yet.
const saysNone = "certificate: there is none yet, and nobody comes in"

var errNone = errors.New("this listener has no certificate yet")

// Config returns the configuration of a listener for protocols. Each handshake uses the present certificate.
func (c *Certificates) Config(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: c.files.MinVersion, NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := c.current.Load()
			if now == nil {
				return nil, errNone
			}
			cfg := now.config.Clone()
			cfg.NextProtos = protocols
			return cfg, nil
		},
	}
}

// Run follows the files, and the Workload API, until ctx ends.
func (c *Certificates) Run(ctx context.Context) error {
	var following sync.WaitGroup
	defer following.Wait()
	if c.api != nil {
		following.Go(func() { c.api.Run(ctx) })
	}
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

// verifyURIs refuses a client whose certificate has a SPIFFE ID and another URI, which would be two identities (SPIFFE's X.509-SVID,
// section 2).
func verifyURIs(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 || len(state.PeerCertificates[0].URIs) < 2 {
		return nil
	}
	for _, uri := range state.PeerCertificates[0].URIs {
		if strings.EqualFold(uri.Scheme, "spiffe") {
			return errors.New("the client's certificate has a SPIFFE ID and another URI: exactly one URI is allowed with a SPIFFE ID")
		}
	}
	return nil
}

// look reads the files and uses what has changed. It logs files that do not fit together only on the second look: a key may be written
// before its certificate. It reports whether the authorities of clients' certificates changed.
func (c *Certificates) look(now time.Time) (others bool) {
	p, t, err := c.read()
	before := c.current.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	again := c.odd == nil && t == nil || t != nil && t.equal(c.odd)
	switch {
	case err == nil:
		if c.trouble != "" && p == before {
			c.log.Info("certificate: what is in force is right again", "listener", c.listener)
		}
		c.odd, c.trouble = nil, ""
	case again && c.trouble != err.Error() && before == nil:
		c.trouble = err.Error()
		c.log.Error(saysNone, "listener", c.listener, "err", err)
	case again && c.trouble != err.Error():
		c.trouble = err.Error()
		c.log.Error("certificate: what is in force stays, since what is to follow is not right", "listener", c.listener, "err", err)
	}
	if err != nil {
		c.odd = t
	}
	switch {
	case p == nil:
		p = before
	case p != before:
		c.current.Store(p)
		others = before == nil || !p.texts.sameTrust(&before.texts)
		c.warned = time.Time{}
		c.log.Info("certificate: it is in force", "listener", c.listener, "of", nameOf(p.leaf), "until", p.leaf.NotAfter.UTC())
	}
	if p != nil {
		c.warnOfEnd(p.leaf, now)
	}
	return others
}

// warnOfEnd warns of the end of the present certificate.
func (c *Certificates) warnOfEnd(leaf *x509.Certificate, now time.Time) {
	left := leaf.NotAfter.Sub(now)
	ended := left <= 0 && c.warned.Before(leaf.NotAfter) // since it was warned of
	if left >= c.soon(leaf) || now.Sub(c.warned) < warnEvery && !ended {
		return
	}
	c.warned = now
	if left <= 0 {
		c.log.Error("certificate: it has expired: clients refuse it", "listener", c.listener, "file", c.files.Certificate, "since",
			leaf.NotAfter.UTC())
	} else {
		c.log.Warn("certificate: it expires soon", "listener", c.listener, "file", c.files.Certificate, "at", leaf.NotAfter.UTC())
	}
}

// soon is how long before its end a certificate is warned of. Those of a Workload API usually live for an hour and are replaced after half
// of it.
func (c *Certificates) soon(leaf *x509.Certificate) time.Duration {
	if spiffe.Named(c.files.Certificate) {
		return min(expiresSoon, leaf.NotAfter.Sub(leaf.NotBefore)/4)
	}
	return expiresSoon
}

// Status is the status of the certificate of a listener.
type Status struct {
	Listener string    `json:"listener"`
	File     string    `json:"file"`
	Subject  string    `json:"subject"`           // its names
	NotAfter time.Time `json:"notAfter,omitzero"` // zero if there is none yet
	Expired  bool      `json:"expired,omitempty"`
	Soon     bool      `json:"soon,omitempty"`    // it expires soon, and should have been renewed by now
	Trouble  string    `json:"trouble,omitempty"` // why the present content of the files is not in force
}

// Status returns the status.
func (c *Certificates) Status() Status {
	now := c.current.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Status{Listener: c.listener, File: c.files.Certificate, Trouble: c.trouble}
	if now == nil {
		s.Trouble = cmp.Or(s.Trouble, errNone.Error())
		return s
	}
	s.Subject, s.NotAfter = nameOf(now.leaf), now.leaf.NotAfter
	left := time.Until(s.NotAfter)
	s.Expired = left <= 0
	s.Soon = !s.Expired && left < min(expiresSoon, s.NotAfter.Sub(now.leaf.NotBefore)/4) // those that live for days are renewed late
	return s
}

// nameOf returns the names in a certificate.
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
	"Whether the files of a listener's certificate hold something that cannot be put in force, or the SPIFFE Workload API that it is from "+
		"is away (1).", []string{"listener"}, nil)

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
		if !s.NotAfter.IsZero() {
			ch <- prometheus.MustNewConstMetric(expiryDesc, prometheus.GaugeValue, float64(s.NotAfter.Unix()), c.listener)
		}
		ch <- prometheus.MustNewConstMetric(troubleDesc, prometheus.GaugeValue, trouble, c.listener)
	}
}
