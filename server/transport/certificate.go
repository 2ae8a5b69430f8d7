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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/internal/spiffe"
	"tributary/internal/words"
)

// Files are the PEM files of a TLS server, which are read again when they change. Certificate and ClientCAs may be
// names of package spiffe.
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
	// checkInterval is the time between reads of the files. File notifications miss some changes: those of a link further
	// up, or of a network file system.
	checkInterval = time.Second
	warnInterval  = 24 * time.Hour
)

// Certificates has the certificate of one listener: that of the last valid files. It is safe for concurrent use.
type Certificates struct {
	listener string // its name in logs
	files    Files
	log      *slog.Logger
	api      *spiffe.API          // or nil
	current  atomic.Pointer[pair] // nil until the API has answered for the first time
	changed  func()               // called when other clientCAs are in force; or nil

	mu      sync.Mutex
	failed  bool      // the last check
	trouble string    // why the present content of the files is not in force; empty if it is
	warned  time.Time // of the expiry
}

// pair is a certificate with its key and the authorities of clients, as the files and the Workload API have them.
type pair struct {
	certificate, key, clientCAs []byte
	identities                  *spiffe.Credentials

	leaf   *x509.Certificate
	config *tls.Config
}

func (p *pair) sameContent(other *pair) bool {
	return other != nil && bytes.Equal(p.certificate, other.certificate) && bytes.Equal(p.key, other.key) &&
		p.sameAuthorities(other) && p.identities.Equal(other.identities)
}

func (p *pair) sameAuthorities(other *pair) bool {
	return bytes.Equal(p.clientCAs, other.clientCAs) && p.identities.SameTrust(other.identities)
}

// Load reads the files of a listener. An error names the file. If the Workload API does not answer, Load succeeds, and
// handshakes fail until it does.
func Load(ctx context.Context, listener string, files Files, log *slog.Logger) (*Certificates, error) {
	certificates := &Certificates{listener: listener, files: files, log: log}
	if spiffe.Named(files.Certificate) || spiffe.Named(files.ClientCAs) {
		certificates.api = spiffe.New(files.WorkloadAPI)
		if _, err := certificates.api.Ask(ctx); err != nil {
			certificates.trouble = err.Error()
			log.Error(noCertificate, "listener", listener, "err", err)
			return certificates, nil
		}
	}
	loaded, err := certificates.read()
	if err != nil {
		return nil, err
	}
	certificates.current.Store(loaded)
	return certificates, nil
}

// read reads the files, and the last answer of the Workload API. It returns a pair with an error if the API is away.
func (c *Certificates) read() (*pair, error) {
	loaded := new(pair)
	var err error
	for _, file := range []struct {
		name    string
		content *[]byte
	}{{c.files.Certificate, &loaded.certificate}, {c.files.Key, &loaded.key}, {c.files.ClientCAs, &loaded.clientCAs}} {
		if file.name == "" || spiffe.Named(file.name) {
			continue
		}
		*file.content, err = os.ReadFile(file.name)
		if err != nil {
			return nil, err
		}
	}
	var away error
	if c.api != nil {
		loaded.identities, away = c.api.Last()
		if loaded.identities == nil {
			return nil, away
		}
	}
	if current := c.current.Load(); loaded.sameContent(current) {
		return current, away
	}
	if err = loaded.parse(&c.files); err != nil {
		return nil, err
	}
	return loaded, away
}

func (p *pair) parse(files *Files) (err error) {
	certificate := new(tls.Certificate)
	if spiffe.Named(files.Certificate) {
		certificate, err = p.identities.Certificate(files.Certificate)
	} else {
		*certificate, err = tls.X509KeyPair(p.certificate, p.key)
	}
	switch {
	case err != nil && files.Key != "":
		return fmt.Errorf("certificate %s and key %s: %w", files.Certificate, files.Key, words.KeyPairError(err))
	case err != nil:
		return fmt.Errorf("certificate %s: %w", files.Certificate, err)
	}
	p.leaf = certificate.Leaf
	p.config = &tls.Config{
		Certificates: []tls.Certificate{*certificate}, ClientAuth: files.Client,
		MinVersion: files.MinVersion, VerifyConnection: verifyURIs, //nolint:gosec // it is set
	}
	switch trust := files.ClientCAs; {
	case trust == "":
	case spiffe.Named(trust):
		p.config.ClientCAs = p.identities.Authorities(trust)
		p.config.VerifyConnection = func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return nil // ClientAuth decides whether there has to be one
			}
			return p.identities.Verify(trust, state.PeerCertificates)
		}
	default:
		p.config.ClientCAs = x509.NewCertPool()
		if !p.config.ClientCAs.AppendCertsFromPEM(p.clientCAs) {
			return fmt.Errorf("clientCAs %s: there is no certificate in it", trust)
		}
	}
	return nil
}

// OnChange sets the function that is called when other clientCAs are in force. Call it before Run.
func (c *Certificates) OnChange(changed func()) { c.changed = changed }

// Trusts returns an error if the present clientCAs do not verify the chain of a client's certificate.
func (c *Certificates) Trusts(chain []*x509.Certificate) error {
	current := c.current.Load()
	if current == nil || current.config.ClientCAs == nil || len(chain) == 0 {
		return errors.New("certificates of clients are no longer taken")
	}
	if spiffe.Named(c.files.ClientCAs) {
		return current.identities.Verify(c.files.ClientCAs, chain)
	}
	intermediates := x509.NewCertPool()
	for _, authority := range chain[1:] {
		intermediates.AddCert(authority)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: current.config.ClientCAs, Intermediates: intermediates,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}

const noCertificate = "no certificate yet: TLS connections are refused"

// Config returns the configuration of a listener for protocols. Each handshake uses the present certificate.
func (c *Certificates) Config(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: c.files.MinVersion, NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			current := c.current.Load()
			if current == nil {
				return nil, errors.New(noCertificate)
			}
			config := current.config.Clone()
			config.NextProtos = protocols
			return config, nil
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
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		if c.refresh(time.Now()) && c.changed != nil {
			c.changed()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// verifyURIs refuses a client whose certificate has a SPIFFE ID and another URI, which would be two identities
// (SPIFFE's X.509-SVID, section 2).
func verifyURIs(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 || len(state.PeerCertificates[0].URIs) < 2 {
		return nil
	}
	for _, uri := range state.PeerCertificates[0].URIs {
		if strings.EqualFold(uri.Scheme, "spiffe") {
			return errors.New("the client's certificate has a SPIFFE ID and another URI: " +
				"exactly one URI is allowed with a SPIFFE ID")
		}
	}
	return nil
}

// refresh reads the files, uses changed ones, and reports whether the authorities of clients' certificates changed. It
// logs an error when two checks in a row fail: a key may be written before its certificate.
func (c *Certificates) refresh(now time.Time) (otherAuthorities bool) {
	previous := c.current.Load()
	current, err := c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil && c.trouble != "" && current == previous:
		c.log.Info("certificate: the content is valid again", "listener", c.listener)
		c.trouble = ""
	case err == nil:
		c.trouble = ""
	case c.failed && c.trouble != err.Error():
		c.trouble = err.Error()
		if previous == nil {
			c.log.Error(noCertificate, "listener", c.listener, "err", err)
		} else {
			c.log.Error("certificate: no valid new content: the previous certificate stays in force",
				"listener", c.listener, "err", err)
		}
	}
	c.failed = err != nil
	switch {
	case current == nil:
		current = previous
	case current != previous:
		c.current.Store(current)
		otherAuthorities = previous == nil || !current.sameAuthorities(previous)
		c.warned = time.Time{}
		c.log.Info("certificate: in force", "listener", c.listener, "names", subject(current.leaf),
			"until", current.leaf.NotAfter.UTC())
	}
	if current != nil {
		c.warnOfExpiry(current.leaf, now)
	}
	return otherAuthorities
}

func (c *Certificates) warnOfExpiry(leaf *x509.Certificate, now time.Time) {
	remaining := leaf.NotAfter.Sub(now)
	newlyExpired := remaining <= 0 && c.warned.Before(leaf.NotAfter)
	if remaining >= renewalWarning(leaf) || now.Sub(c.warned) < warnInterval && !newlyExpired {
		return
	}
	c.warned = now
	log, message := c.log.Warn, "certificate: it expires soon"
	if remaining <= 0 {
		log, message = c.log.Error, "certificate: it has expired: clients refuse it"
	}
	log(message, "listener", c.listener, "file", c.files.Certificate, "notAfter", leaf.NotAfter.UTC())
}

// renewalWarning is the time before the expiry of a certificate at which it should have been renewed: two weeks. Those
// of a Workload API usually live for an hour and are replaced after half of it.
func renewalWarning(leaf *x509.Certificate) time.Duration {
	return min(14*24*time.Hour, leaf.NotAfter.Sub(leaf.NotBefore)/4)
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
	current := c.current.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	status := Status{Listener: c.listener, File: c.files.Certificate, Trouble: c.trouble}
	if current == nil {
		status.Trouble = cmp.Or(status.Trouble, noCertificate)
		return status
	}
	status.Subject = subject(current.leaf)
	status.NotAfter = current.leaf.NotAfter
	remaining := time.Until(status.NotAfter)
	status.Expired = remaining <= 0
	status.Soon = !status.Expired && remaining < renewalWarning(current.leaf)
	return status
}

// subject returns the names in a certificate.
func subject(leaf *x509.Certificate) string {
	names := slices.Clone(leaf.DNSNames)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	for _, uri := range leaf.URIs {
		names = append(names, uri.String())
	}
	return cmp.Or(strings.Join(names, ", "), leaf.Subject.String())
}

var (
	expiryDesc = prometheus.NewDesc("tributary_certificate_expiry_timestamp_seconds",
		"When the certificate that is in force expires, in seconds since 1970, by listener.", []string{"listener"}, nil)
	troubleDesc = prometheus.NewDesc("tributary_certificate_trouble",
		"Whether the files of a listener's certificate hold something that cannot be put in force, or the SPIFFE Workload "+
			"API that it is from is away (1).", []string{"listener"}, nil)
)

// Metrics are those of the certificates of all listeners.
type Metrics []*Certificates

// Describe implements prometheus.Collector.
func (m Metrics) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- expiryDesc
	descriptions <- troubleDesc
}

// Collect implements prometheus.Collector.
func (m Metrics) Collect(metrics chan<- prometheus.Metric) {
	for _, certificates := range m {
		status, trouble := certificates.Status(), 0.0
		if status.Trouble != "" {
			trouble = 1
		}
		if !status.NotAfter.IsZero() {
			metrics <- prometheus.MustNewConstMetric(expiryDesc, prometheus.GaugeValue, float64(status.NotAfter.Unix()),
				certificates.listener)
		}
		metrics <- prometheus.MustNewConstMetric(troubleDesc, prometheus.GaugeValue, trouble, certificates.listener)
	}
}
