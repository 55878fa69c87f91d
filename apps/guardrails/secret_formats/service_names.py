"""Names of services that give out keys, as programs and settings write them: one word, lower case.

A random value right beside one of them is a key of that service. Words of the language that are also names of services
are left out where they say nothing of what stands beside them.
"""

from __future__ import annotations

SERVICE_NAMES = frozenset(
    """
    1password abuseipdb abyssale accuweather adafruitio adobeio adyen adzuna aeroworkflow airbrake airtable
    airvisual aiven akamai alconost alegra aletheia algolia alibaba alienvault amadeus ambee amplitude anthropic
    anypoint apacta api2cart apideck apiflash apifonica apify apilayer apimatic apimetrics apitemplate appcues
    appfollow appointedd appsynergy apptivo artifactory artifactoryreference artsy asana assemblyai atera atlassian
    atlassiandatacenter audd auth0 autodesk autoklose autopilot avaza aviationstack axonaut aylien ayrshare azure
    azureapimanagement azureappconfigconnectionstring azurecontainerregistry azuredevops azuredirectmanagement
    azurefunction azuresas azuresearch bannerbear baremetrics beebole besnappy besttime betterstack bigcommerce
    billomat binance bitbar bitbucketapppassword bitfinex bitly bitmex bitpay blazemeter blitapp blockfrost
    blocknative blogger bombbomb borgbase braintreepayments braintrust brandfetch braze browserstack browshot
    bscscan buddyns budibase bugherd bugsnag buildkite buttercms caflou calendarific calendly calorieninja campayn
    cannyio caspio censys centralstation cerebras cexio chargebee chartmogul chatfule checio checklyhq checkvist
    circleci clarifai clearbit clicksend clickup cliengo clientary clinchpad clockify cloudconvert cloudelements
    cloudflare cloudflareca cloudflareglobal cloudimage cloudinary cloudmersive cloudplan cloudsmith cloverly cloze
    clustdoc coda codacy codeclimate codemagic codequiry cohere coinbase coinlayer coinlib coinmarketcap commercejs
    companyhub confluent contentful conversiontools convertkit convier couchbase countrylayer coveralls craftmypdf
    crowdin cryptocompare currencycloud currencyfreaks currencylayer currencyscoop d7network dailyco dareboost
    databox databricks datadog datagov deepai deepgram deepinfra deepseek demio deno detectify detectlanguage dfuse
    diffbot diggernaut digitalocean discord disqus dnscheck docker dockerhub docparser documo docusign doppler
    dotdigital dovico dronahq droneci dropbox duffel duply dwolla dynalist dynatrace dyspatch eagleeyenetworks
    easyinsight easypost ecostruxureit edamam edenai eightxeight elasticemail elevenlabs enablex endorlabs envoy
    etherscan ethplorer etsy eventbrite everhour exchangerate exchangerates exportsdk facebook faceplusplus
    fastforex fastly feedier fetchrss fibery figma finage financialmodelingprep findl finnhub firecrawl fixerio
    flatio fleetbase flexport flickr flightlabs flightstats flowflu flutterwave flyio fmfw formbucket formcraft
    formsite foursquare frameio freshbooks freshdesk fullstory fxmarket gcpapplicationdefaultcredentials geckoboard
    gengo geoapify geocodify geocodio geoip geoipifi getemail getemails getgeo getgist getresponse getsandbox
    gitbook github githubapp gitlab gitter glassnode gocanvas gocardless godaddy googlegemini grafana
    grafanaserviceaccount graphcms graphhopper groovehq groq gtmetrix gumroad gusto gyazo happyscribe harness
    harvest hashicorpvault hashicorpvaultauth hasura hellosign helpcrunch helpscout heroku honeycomb hotjar html2pdf
    hubspot huggingface hunter hybiscus hypertrack ibmcloud iconfinder iexapis iexcloud imagekit imagga imgur
    infracost infura insightly instabot instagram instamojo intercom interseller intra42 intrinio invoiceocean
    ipgeolocation ipinfo ipinfodb ipquality ipstack iterable jenkins jfrog jira jotform jumpcloud jupiterone juro
    kanban kanbantool keenio kickbox klarna klaviyo klipfolio knapsackpro kontent kraken kubecost kucoin kylas
    langfuse langsmith languagelayer larksuite launchdarkly leadfeeder lemlist lemonsqueezy lendflow lessannoying
    lexigram linemessaging linenotify linkpreview linode liveagent livestorm locationiq loggly loginradius logzio
    lokalise looker loyverse lunchmoney madkudu magicbell mailboxlayer mailchimp mailerlite mailgun mailjet mailmodo
    mailsac mandrill mapbox marketstack mattermost mavenlink maxmindlicense meaningcloud mediastack meistertask
    meraki mesibo messagebird metabase metrilo microsoftteams mindmeister miro mistral mixmax mixpanel mockaroo
    mollie monday mongodb monkeylearn moonclerk moosend moralis mrticktock myfreshworks myintervals mysql
    nasdaqdatalink nethunt netlify netsuite neutrino newrelic newrelicinsights newrelicmobile newrelicpersonal
    newscatcher nexmo nftport ngrok nicereply nightfall nimble notion nozbeteams nuget numverify nutritionix nylas
    oanda octopusdeploy okta omnisend onelogin onepage onepassword onesignal onfido onfleet oopspam openai
    opencagedata openrouter openuv openvpn openweather opsgenie optimizely packagecloud pagarme pagerduty pandadoc
    pandascore paperform paralleldots parsehub parseur partnerstack paydirtapp paymoapp paymongo paypal paystack
    pdflayer pdfshift pendo peopledatalabs pepipost perplexity pganalyze photoroom pinata pinecone pipedream
    pipedrive pivotaltracker pixabay plaid planetscale planetscaledb planviewleankit planyo plivo podio poloniex
    polygon portainer portkey positionstack postageapp postbacks postgres posthog postman postmark powrbot prefect
    prodpad protocolsio proxycrawl pubnub pulumi purestake pushbullet pusher pypi qase qualaroo qualtrics qubole
    quickbooks rabbitmq railway railwayapp rawg razorpay reachmail reallysimplesystems rebrandly recaptcha
    rechargepayments recurly redhatpyxis redis repairshopr replit replyio requestfinance restpackhtmltopdf
    restpackscreenshot revolut ringcentral ritekit robinhoodcrypto rocketreach rollbar rootly route4me rownd
    rubygems runpod runrunit saladcloud salesblink salescookie salesflare salesforce salesmate satismeter saucelabs
    scaleway scalr scrapeowl scraper scraperbox scrapestack scrapfly scrapingant scrapingbee screenshot
    screenshotlayer scrutinizerci securitytrails selectpdf semaphore sendbird sendgrid sendinblue sentry serphouse
    serpstack sheety sherpadesk shippo shodan shopify shotstack shutterstock signalwire signupgenius sigopt simfin
    simplesat simplynoted simvoly sinch sinchmessage siteleaf skrappio skybiometry slack smartling smartsheets
    smartystreets snipcart snowflake snyk solarwinds sonar sonarcloud sourcegraph sourcegraphcody sparkpost
    spectralops speechtextai splunk spoonacular sportsmonk spotify squareapp squarespace sslmate statuscake
    statuspage statuspal stitchdata stockdata storecove stormboard stormglass storyblok storychief stripe
    stripepaymentintent stripo stytch sugester sumo sumologic supabase surveyanyplace surveybot surveymonkey
    surveysparrow survicate swiftype tailscale tallyfy tatumio tavily taxjar teamgate teamwork teamworkdesk
    teamworkspaces tefter telegram teletype telnyx terraformcloud testingbot textmagic thinkific thousandeyes
    ticketmaster tickettailor tiingo timecamp tines tmetric todoist toggl toggltrack tokeet tomorrowio tomtom
    tradier transferwise travelpayouts travisci trello truecaller trufflehogenterprise tumblr twelvedata twilio
    twitch twitter tyntec typeform typesense typetalk ubidots uclassify unifyid unsplash upcdatabase uplead
    uploadcare uptimerobot upwave urlscan userflow userstack vagrantcloud vatlayer vbout vercel verifier verimail
    veriphone versioneye viewneo vimeo virustotal visualcrossing voiceflow voicegain vonage voodoo vouchery voyageai
    vultr vyte weatherbit weatherstack weaviate web3storage webex webexbot webflow webscraper webscraping
    websitepulse wechat weightsandbiases wepay whoxy wistia workday workos worksnaps workstack worldcoinindex
    worldweather wrike xendit yandex yelp youneedabudget yousign youtube zapier zendesk zenkit zenrows zenscrape
    zenserp zeplin zerobounce zerotier zipbooks zipcode zipcodebase zoho zonkafeedback zulipchat
    beamer coinapi codeclima collect2 freshworks hockeyapp kolide picatic sauce softlayer geoip holidayapi luno
    metaapi mux owm prospectcrm pyowm refiner rentman runscope scrapingbee scraping_bee skrapp thingsboard
    timezoneapi
    """.split()  # noqa: SIM905 - as words are written
)
