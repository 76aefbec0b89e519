-- Where the server looks for translations of its messages.
SELECT setting FROM pg_config() WHERE name = 'LOCALEDIR'
